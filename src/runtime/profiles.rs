//! Security profiles of the host that containers name: seccomp profiles in files, AppArmor profiles in the
//! kernel.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};

use super::StartError;
use super::spec::{AppArmor, SeccompFile, SpecError, localhost_profile};
use crate::system::node::{APPARMOR_PROFILES, NodeFeatures, is_loaded};

/// Profiles have some tens of kilobytes.
const MAX_PROFILE: u64 = 1 << 20;
/// How far a profile that is not where it should be is looked for.
const SEARCH_DEPTH: usize = 3;
const SEARCH_ENTRIES: usize = 1000;

/// What keeps the containers of a pod from having the profiles that they name, one line for each; `root` is the
/// directory of seccomp profiles.
pub fn lacking(pod: &Pod, root: &Path, node: &NodeFeatures) -> Vec<String> {
    let spec = pod.spec.iter();
    let containers = spec.flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers));
    let each = |container| {
        let apparmor = check_apparmor(pod, container, node).err();
        seccomp_file(pod, container, root).err().into_iter().chain(apparmor)
    };
    containers.flat_map(each).map(|e| e.message).collect()
}

/// Reads the seccomp profile that a container names, below `root`.
pub(super) fn seccomp_file(
    pod: &Pod,
    container: &Container,
    root: &Path,
) -> Result<Option<SeccompFile>, StartError> {
    let Some(name) = localhost_profile(pod, container) else { return Ok(None) };
    let path = root.join(name);
    let failed = |text: String| {
        StartError::config(format!(
            "container {}: seccompProfile.localhostProfile {name:?}: {text}",
            container.name
        ))
    };
    match read(&path) {
        Ok(text) => Ok(Some(SeccompFile { path, text })),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(failed(missing(root, name, &path))),
        Err(e) => Err(failed(format!("cannot read {}: {e}", path.display()))),
    }
}

fn read(path: &Path) -> io::Result<String> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    fs::File::open(path)?.take(MAX_PROFILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_PROFILE {
        return Err(io::Error::other(format!("it is larger than {} MiB", MAX_PROFILE >> 20)));
    }
    Ok(text)
}

/// Says which path was tried, and where a file of that name lies instead.
fn missing(root: &Path, name: &str, path: &Path) -> String {
    let mut text = format!("there is no {}", path.display());
    let wanted = Path::new(name).file_name();
    let mut left = SEARCH_ENTRIES;
    let found = wanted.and_then(|wanted| find(root, wanted, SEARCH_DEPTH, &mut left));
    match found.as_deref().and_then(|f| f.strip_prefix(root).ok()) {
        Some(other) => text += &format!("; {} is there: write localhostProfile: {0}", other.display()),
        None => text += &format!("; put the profile there (seccompProfileRoot is {})", root.display()),
    }
    text
}

fn find(dir: &Path, wanted: &std::ffi::OsStr, depth: usize, left: &mut usize) -> Option<PathBuf> {
    let mut deeper = Vec::new();
    for entry in fs::read_dir(dir).ok()?.flatten() {
        *left = left.checked_sub(1)?;
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => deeper.push(entry.path()),
            Ok(_) if entry.file_name() == wanted => return Some(entry.path()),
            _ => {}
        }
    }
    deeper.sort();
    let depth = depth.checked_sub(1)?;
    deeper.iter().find_map(|dir| find(dir, wanted, depth, left))
}

/// Whether the AppArmor profile that a container names is loaded.
pub(super) fn check_apparmor(
    pod: &Pod,
    container: &Container,
    node: &NodeFeatures,
) -> Result<(), StartError> {
    let AppArmor::Localhost(name) = AppArmor::of(pod, container) else { return Ok(()) };
    if !node.apparmor {
        let none = SpecError::NoAppArmor { container: container.name.clone(), profile: name };
        return Err(StartError::new(none.reason(), none.to_string()));
    }
    match fs::read_to_string(APPARMOR_PROFILES) {
        Ok(profiles) if !is_loaded(&profiles, &name) => Err(StartError::config(format!(
            "container {}: appArmorProfile {name:?} is not loaded on this host: load it with apparmor_parser",
            container.name
        ))),
        // Without the list the runtime finds out.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(profile: &str) -> Pod {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "app"}], "securityContext": {
                "seccompProfile": {"type": "Localhost", "localhostProfile": profile}}}
        }))
        .unwrap()
    }

    fn load(root: &Path, profile: &str) -> Result<Option<SeccompFile>, String> {
        let pod = pod(profile);
        let container = &pod.spec.as_ref().unwrap().containers[0];
        seccomp_file(&pod, container, root).map_err(|e| e.message)
    }

    #[test]
    fn a_missing_profile_is_told_with_its_path_and_a_hint_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir(root.join("profiles")).unwrap();
        fs::write(root.join("profiles/audit.json"), "{}").unwrap();
        let file = load(root, "profiles/audit.json").unwrap().unwrap();
        assert_eq!((file.path, file.text.as_str()), (root.join("profiles/audit.json"), "{}"));
        let at = root.display();
        assert_eq!(
            load(root, "audit.json").unwrap_err(),
            format!(
                "container app: seccompProfile.localhostProfile \"audit.json\": there is no {at}/audit.json; \
                 profiles/audit.json is there: write localhostProfile: profiles/audit.json"
            )
        );
        let text = load(root, "none.json").unwrap_err();
        assert!(text.ends_with(&format!(
            "there is no {at}/none.json; put the profile there (seccompProfileRoot is {at})"
        )));
        let text = load(root, "profiles").unwrap_err();
        assert!(text.ends_with("it is not a regular file"), "{text}");
    }
}
