//! `podling.dev/start-after`: pods that must be Ready before this one starts.

use k8s_openapi::api::core::v1::Pod;

use crate::manifest::PodKey;

pub(super) fn check(text: &str, _: &Pod) -> Result<(), String> {
    parse(text, "default").map(drop)
}

fn parse(text: &str, namespace: &str) -> Result<Vec<PodKey>, String> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(|name| one(name, namespace)).collect()
}

fn one(name: &str, namespace: &str) -> Result<PodKey, String> {
    let word = |s: &str| {
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        !s.is_empty() && s.len() <= 253 && s.chars().all(legal)
    };
    let (namespace, pod) = name.split_once('/').unwrap_or((namespace, name));
    match word(namespace) && word(pod) {
        true => Ok(PodKey::new(namespace, pod)),
        false => Err(format!(
            "{name:?} is not the name of a pod; write name or namespace/name, with commas between"
        )),
    }
}

/// The pods that a pod of this namespace starts after; none where the manifest does not say.
pub fn start_after(pod: &Pod, namespace: &str) -> Vec<PodKey> {
    super::value(pod, "start-after").and_then(|text| parse(text, namespace).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_the_pods_own_namespace_unless_they_say_another() {
        let keys = parse("db, kube-system/dns,", "web").unwrap();
        assert_eq!(keys, [PodKey::new("web", "db"), PodKey::new("kube-system", "dns")]);
        assert_eq!(parse("", "web").unwrap(), []);
        for wrong in ["Db", "a b", "a/b/c", "/a", "a/"] {
            assert!(parse(wrong, "web").is_err(), "{wrong}");
        }
    }
}
