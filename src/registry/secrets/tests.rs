use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;

fn data(key: &str, text: &str) -> std::collections::BTreeMap<String, Vec<u8>> {
    [(key.to_owned(), text.as_bytes().to_vec())].into()
}

fn ring(files: &[&Path]) -> Keyring {
    Keyring { files: files.iter().map(|p| (*p).to_owned()).collect(), ..Keyring::default() }
}

async fn names(ring: &Keyring, host: &str, repository: &str) -> Vec<String> {
    let (found, problems) = ring.lookup(host, repository).await;
    assert_eq!(problems, Vec::<String>::new());
    found.into_iter().map(|c| format!("{}:{}{}", c.username, c.password, c.identity_token)).collect()
}

fn script(path: &Path, body: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn both_forms_of_docker_configuration_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let (new, old) = (dir.path().join("config.json"), dir.path().join(".dockercfg"));
    // "me:secret" and "you:other".
    std::fs::write(&new, r#"{"auths": {"reg.io": {"auth": "bWU6c2VjcmV0"}, "empty.io": {}}}"#).unwrap();
    std::fs::write(
        &old,
        r#"{"https://reg.io/team": {"username": "you", "password": "other", "email": "x"}}"#,
    )
    .unwrap();
    let ring = ring(&[&new, &old, &dir.path().join("none.json")]);
    assert_eq!(names(&ring, "reg.io", "team/app").await, ["me:secret", "you:other"]);
    assert_eq!(names(&ring, "reg.io", "app").await, ["me:secret"]);
    assert!(names(&ring, "empty.io", "app").await.is_empty());
}

#[tokio::test]
async fn docker_hub_is_known_by_all_its_names() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.json");
    std::fs::write(
        &file,
        r#"{"auths": {"https://index.docker.io/v1/": {"username": "a", "password": "b"}}}"#,
    )
    .unwrap();
    for host in ["registry-1.docker.io", "docker.io", "index.docker.io"] {
        assert_eq!(names(&ring(&[&file]), host, "library/busybox").await, ["a:b"], "{host}");
    }
}

#[tokio::test]
async fn pull_secrets_come_before_the_nodes_files_and_paths_before_hosts() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.json");
    std::fs::write(&file, r#"{"auths": {"reg.io": {"username": "node", "password": "n"}}}"#).unwrap();
    let text = r#"{"auths": {"reg.io": {"username": "wide", "password": "w"},
                             "reg.io/team": {"username": "near", "password": "n"}}}"#;
    let keys = of_secret(&data(".dockerconfigjson", text)).unwrap();
    let ring = Keyring { pull_secrets: vec![keys], ..ring(&[&file]) };
    assert_eq!(names(&ring, "reg.io", "team/app").await, ["near:n", "wide:w", "node:n"]);
}

#[test]
fn a_secret_that_is_none_says_what_it_should_be_and_shows_nothing() {
    assert_eq!(of_secret(&data("password", "x")).unwrap_err(), SecretError::Kind);
    for (key, text) in [
        (".dockerconfigjson", r#"{"auths": {"r": {"auth": "hunter2hunter2"}}}"#),
        (".dockerconfigjson", r#"{"auths": "hunter2"}"#),
        (".dockercfg", r#""hunter2""#),
    ] {
        let e = of_secret(&data(key, text)).unwrap_err().to_string();
        assert!(e.starts_with(key) && !e.contains("hunter2"), "{e}");
    }
    let old = of_secret(&data(".dockercfg", r#"{"reg.io": {"username": "a", "password": "b"}}"#)).unwrap();
    assert_eq!(old.of("reg.io/x").count(), 1);
    assert_eq!(format!("{old:?}").matches('b').count(), 0, "{old:?}");
}

#[tokio::test]
async fn a_damaged_file_is_named_and_the_others_count() {
    let dir = tempfile::tempdir().unwrap();
    let (bad, good) = (dir.path().join("bad.json"), dir.path().join("config.json"));
    std::fs::write(&bad, "{").unwrap();
    std::fs::write(&good, r#"{"auths": {"reg.io": {"username": "a", "password": "b"}}}"#).unwrap();
    let (found, problems) = ring(&[&bad, &good]).lookup("reg.io", "x").await;
    assert_eq!(found.len(), 1);
    assert!(problems[0].starts_with(&format!("{}: ", bad.display())), "{problems:?}");
}

#[tokio::test]
async fn an_entry_that_cannot_be_used_and_a_helper_that_fails_take_nothing_from_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.json");
    let text = r#"{"auths": {"reg.io": {"username": "a", "password": "b"}, "bad.io": {"auth": "?"}},
                   "credHelpers": null, "credsStore": "podling-test-none"}"#;
    std::fs::write(&file, text).unwrap();
    let (found, problems) = ring(&[&file]).lookup("reg.io", "x").await;
    assert_eq!((found.len(), problems.len()), (1, 1), "{problems:?}");
    let (found, problems) = ring(&[&file]).lookup("bad.io", "x").await;
    assert!(
        found.is_empty() && problems[0].ends_with("auths[\"bad.io\"]: auth is not base64"),
        "{problems:?}"
    );
}

#[tokio::test]
async fn a_missing_helper_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.json");
    std::fs::write(&file, r#"{"credHelpers": {"reg.io": "podling-test-none"}}"#).unwrap();
    let (_, problems) = ring(&[&file]).lookup("reg.io", "x").await;
    assert!(problems[0].contains("docker-credential-podling-test-none: cannot start it"), "{problems:?}");
    let (_, problems) = ring(&[&file]).lookup("other.io", "x").await;
    assert!(problems.is_empty());
}

#[tokio::test]
async fn a_plugin_is_asked_for_its_images_and_its_answer_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (config, calls) = (dir.path().join("config.yaml"), dir.path().join("calls"));
    std::fs::write(
        &config,
        "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- name: prov\n  \
         apiVersion: credentialprovider.kubelet.k8s.io/v1\n  matchImages: [\"*.reg.io\"]\n  \
         defaultCacheDuration: 10m\n  args: [one]\n  env: [{name: WHO, value: me}]\n",
    )
    .unwrap();
    let body = format!(
        "cat >> {0}; echo \"$1\" >> {0}\necho '{{\"kind\": \"CredentialProviderResponse\", \
         \"cacheKeyType\": \"Registry\", \"auth\": {{\"*.reg.io\": {{\"username\": \"'$WHO'\", \"password\": \"p\"}}}}}}'",
        calls.display()
    );
    script(&dir.path().join("prov"), &body);
    let plugins = Plugins::load(&config, dir.path()).unwrap();
    let ring = Keyring { plugins: Some(Arc::new(plugins)), ..Keyring::default() };
    assert_eq!(names(&ring, "eu.reg.io", "a").await, ["me:p"]);
    assert_eq!(names(&ring, "eu.reg.io", "b").await, ["me:p"]);
    assert!(names(&ring, "other.io", "a").await.is_empty());
    assert!(names(&ring, "registry-1.docker.io", "library/a").await.is_empty());
    let said = std::fs::read_to_string(&calls).unwrap();
    assert_eq!(said.matches("CredentialProviderRequest").count(), 1, "{said}");
    assert!(said.contains(r#""image":"eu.reg.io/a""#) && said.ends_with("one\n"), "{said}");
}

#[test]
fn a_plugin_configuration_of_another_kind_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.yaml");
    std::fs::write(&file, "kind: KubeletConfiguration\n").unwrap();
    let e = Plugins::load(&file, dir.path()).unwrap_err().to_string();
    assert!(e.ends_with("kind is \"KubeletConfiguration\", not CredentialProviderConfig"), "{e}");
}
