use super::*;
use crate::manifest::{Document, ReadOptions, read};

fn document(annotations: &str) -> Document {
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  annotations:\n    {}\nspec:\n  containers:\n  \
         - {{name: app, image: a}}\n  - {{name: other, image: a}}\n",
        annotations.replace('\n', "\n    ")
    );
    read(text.as_bytes(), &ReadOptions::default()).remove(0)
}

/// What is said about annotations, one line each.
fn said(annotations: &str) -> Vec<String> {
    document(annotations).diagnostics.iter().map(|d| format!("{}:{}: {}", d.line, d.column, d.text)).collect()
}

#[test]
fn an_unknown_annotation_is_warned_about_with_what_was_meant() {
    assert_eq!(
        said("podling.dev/shm_size: 1Gi"),
        [
            "6:5: podling knows no annotation podling.dev/shm_size; did you mean podling.dev/shm-size? It has no effect"
        ]
    );
    let strange = said("podling.dev/color: red");
    assert!(
        strange[0].starts_with("6:5: podling knows no annotation podling.dev/color, so it has no effect")
    );
    assert!(document("podling.dev/color: red").pod.is_some(), "it is no reason to refuse the pod");
    assert_eq!(said("example.com/shm_size: 1Gi"), [""; 0]);
}

#[test]
fn a_size_of_shared_memory_must_be_one() {
    assert_eq!(said("podling.dev/shm-size: 256Mi"), [""; 0]);
    for bad in ["lots", "0", "\"-1Mi\"", "\"\""] {
        let said = said(&format!("podling.dev/shm-size: {}", if bad == "0" { "\"0\"" } else { bad }));
        assert!(said[0].ends_with("must be a size above 0 such as 256Mi"), "{said:?}");
        assert!(said[0].starts_with("6:27: Invalid value: "), "{said:?}");
    }
    let pod = document("podling.dev/shm-size: 256Mi").pod.unwrap().pod;
    assert_eq!(shm_size(&pod), Some(256 << 20));
}

#[test]
fn a_value_that_reaches_the_pod_is_part_of_its_hash_and_no_other_is() {
    let hashes = |annotations: &str| document(annotations).pod.unwrap().hashes;
    let (small, large) = (hashes("podling.dev/shm-size: 1Mi"), hashes("podling.dev/shm-size: 2Mi"));
    assert_ne!(small.pod, large.pod);
    assert_eq!(small.containers, large.containers);
    let (one, other) = (hashes("podling.dev/color: red"), hashes("podling.dev/color: blue"));
    assert_eq!(one.pod, other.pod);
}
