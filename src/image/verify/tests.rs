use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::json;

use super::*;
use crate::image::reference::ImageRef;

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

struct Signer {
    pair: EcdsaKeyPair,
    pem: String,
}

impl Signer {
    fn new() -> Self {
        let random = SystemRandom::new();
        let kind = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(kind, document.as_ref(), &random).unwrap();
        let der = [key::P256, pair.public_key().as_ref()].concat();
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der));
        Self { pair, pem }
    }

    fn sign(&self, name: &str, digest: &str) -> Signature {
        let payload = json!({"critical": {
            "identity": {"docker-reference": name}, "image": {"docker-manifest-digest": digest},
            "type": "cosign container image signature"}, "optional": null});
        let payload = payload.to_string().into_bytes();
        let signature = self.pair.sign(&SystemRandom::new(), &payload).unwrap().as_ref().to_vec();
        Signature { payload, signature }
    }
}

fn load(dir: &Path, policy: &serde_json::Value) -> Result<Option<Policy>, PolicyError> {
    fs::write(dir.join("policy.json"), policy.to_string()).unwrap();
    Policy::load(&dir.join("policy.json"))
}

fn image(name: &str) -> ImageRef {
    ImageRef::parse(name).unwrap()
}

#[test]
fn the_most_specific_scope_decides() {
    let dir = tempfile::tempdir().unwrap();
    let (yes, no) = (json!([{"type": "insecureAcceptAnything"}]), json!([{"type": "reject"}]));
    let policy = json!({"default": no, "transports": {"docker": {
        "docker.io/library": yes, "docker.io/library/bad": no, "docker.io/library/bad:1": yes,
        "reg.io/team": yes, "*.corp.io": yes}}});
    let policy = load(dir.path(), &policy).unwrap().unwrap();
    for (name, taken) in [
        ("busybox", true),
        ("bad", false),
        ("bad:1", true),
        ("docker.io/other/x", false),
        ("reg.io/team/app/x:3", true),
        ("reg.io/teammate", false),
        ("eu.corp.io/a", true),
        ("a.eu.corp.io/a", true),
        ("corp.io/a", false),
    ] {
        assert_eq!(policy.check("docker", &image(name), DIGEST, &[]).is_ok(), taken, "{name}");
    }
    assert_eq!(policy.check("oci-archive", &image("busybox"), DIGEST, &[]), Err(Rejected::Policy));
}

#[test]
fn a_signature_counts_when_key_digest_and_name_are_right() {
    let dir = tempfile::tempdir().unwrap();
    let (signer, other) = (Signer::new(), Signer::new());
    fs::write(dir.path().join("cosign.pub"), &signer.pem).unwrap();
    let key = dir.path().join("cosign.pub").display().to_string();
    let policy = json!({"default": [{"type": "sigstoreSigned", "keyPath": key}]});
    let policy = load(dir.path(), &policy).unwrap().unwrap();
    let app = image("reg.io/app:1");
    assert!(policy.wants_signatures("docker", &app));
    let check = |all: &[Signature]| policy.check("docker", &app, DIGEST, all).map_err(|e| e.to_string());
    assert_eq!(check(&[other.sign("reg.io/app:1", DIGEST), signer.sign("reg.io/app:1", DIGEST)]), Ok(()));
    for (signature, why) in [
        (other.sign("reg.io/app:1", DIGEST), "it is by another key"),
        (signer.sign("reg.io/app:1", "sha256:1"), "it is for sha256:1"),
        (signer.sign("reg.io/app", DIGEST), "\"matchRepository\"} takes it for every tag"),
        (signer.sign("reg.io/other", DIGEST), "it is for an image named \"reg.io/other\""),
        (signer.sign("reg.io/app:2", DIGEST), "it is for an image named \"reg.io/app:2\""),
    ] {
        assert!(check(&[signature]).unwrap_err().ends_with(why), "{why}");
    }
    assert!(check(&[]).unwrap_err().ends_with("it has no signature"));
    let mut changed = signer.sign("reg.io/app:1", DIGEST);
    changed.payload.push(b' ');
    assert!(check(&[changed]).is_err());
}

#[test]
fn keys_may_stand_in_the_policy_and_names_may_be_fixed() {
    let dir = tempfile::tempdir().unwrap();
    let signer = Signer::new();
    let identity = json!({"type": "exactRepository", "dockerRepository": "upstream.io/app"});
    let policy = json!({"default": [{"type": "sigstoreSigned", "keyData": STANDARD.encode(&signer.pem),
        "signedIdentity": identity}]});
    let policy = load(dir.path(), &policy).unwrap().unwrap();
    let mirror = image("mirror.local/app:1");
    assert!(policy.check("docker", &mirror, DIGEST, &[signer.sign("upstream.io/app:7", DIGEST)]).is_ok());
    assert!(policy.check("docker", &mirror, DIGEST, &[signer.sign("mirror.local/app:1", DIGEST)]).is_err());
}

#[test]
fn a_policy_that_cannot_be_read_allows_nothing_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    for (policy, why) in [
        (json!({"default": []}), "default: the list of requirements is empty"),
        (json!({"default": [{"type": "signedBy", "keyPath": "/x"}]}), "signedBy (GPG) is not supported"),
        (json!({"default": [{"type": "sigstoreSigned"}]}), "sigstoreSigned needs keyPath"),
        (json!({"default": [{"type": "sigstoreSigned", "keyPath": "/none.pub"}]}), "key /none.pub: "),
        (json!({"default": [{"type": "what"}]}), "type \"what\" is none of"),
        (json!({"default": [{"type": "reject", "keyPath": "/x"}]}), "reject takes no further fields"),
        (
            json!({"default": [{"type": "sigstoreSigned", "keyPath": "/x", "keyData": "eA=="}]}),
            "only one of keyPath",
        ),
        (json!({"default": [{"type": "sigstoreSigned", "keyPath": "/x", "fulcio": {}}]}), "fulcio (keyless"),
        (
            json!({"default": [{"type": "sigstoreSigned", "keyPath": "/x", "rekorPublicKeyPath": "/y"}]}),
            "rekorPublicKeyPath (",
        ),
        (json!({"default": [{"type": "sigstoreSigned", "keypath": "/x"}]}), "unknown field `keypath`"),
        (
            json!({"default": [{"type": "sigstoreSigned", "keyPath": "/x", "signedIdentity": {"type": "matchAll"}}]}),
            "unknown variant `matchAll`",
        ),
        (json!({"defaults": []}), "unknown field `defaults`"),
    ] {
        let e = load(dir.path(), &policy).unwrap_err().to_string();
        assert!(e.contains(why) && e.ends_with("no image is taken until it is right"), "{e}");
    }
    assert!(Policy::load(&dir.path().join("none")).unwrap().is_none());
    let twice = r#"{"default": [{"type": "reject"}], "transports": {"docker": {"a": [{"type": "reject"}],
        "a": [{"type": "insecureAcceptAnything"}]}}}"#;
    fs::write(dir.path().join("twice.json"), twice).unwrap();
    let e = Policy::load(&dir.path().join("twice.json")).unwrap_err().to_string();
    assert!(e.contains("\"a\" stands twice"), "{e}");
}

#[test]
fn signatures_beside_an_archive_are_those_that_cosign_prints() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("app.tar");
    let signature = Signer::new().sign("reg.io/app", DIGEST);
    let line = json!({"Base64Signature": STANDARD.encode(&signature.signature),
        "Payload": STANDARD.encode(&signature.payload), "Cert": null});
    fs::write(dir.path().join("app.tar.signatures"), format!("{line}\n")).unwrap();
    assert_eq!(beside(&archive), [signature]);
    assert_eq!(beside(&dir.path().join("other.tar")), []);
    assert_eq!(signature_tag("sha256:ab"), "sha256-ab.sig");
}
