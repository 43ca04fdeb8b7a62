//! ConfigMaps and Secrets: as well kept as pods.

use super::*;

fn map(name: &str, value: &str, more: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{k: '{value}'}}\n{more}")
}

/// `name=value` of each object.
fn held(outcome: &Outcome) -> Vec<String> {
    let value = |o: &DataObject| String::from_utf8_lossy(&o.data["k"]).into_owned();
    outcome.objects.iter().map(|o| format!("{}={}", o.key.name, value(o))).collect()
}

#[test]
fn an_edit_that_does_not_parse_keeps_the_objects_of_the_file() {
    let mut b = Bench::new();
    b.write("a.yaml", &(map("a", "1", "") + "---\n" + &yaml("web", "i:1")));
    assert_eq!(held(&b.settled()), ["a=1"]);
    b.write("a.yaml", "kind: [\n");
    let found = b.settled();
    assert_eq!((held(&found), running(&found)), (vec!["a=1".to_owned()], vec!["web=i:1".to_owned()]));
    assert!(
        only(&found).message.contains("default/web, ConfigMap default/a stay as last accepted"),
        "{found:?}"
    );
    b.write("a.yaml", &yaml("web", "i:1"));
    assert!(held(&b.settled()).is_empty(), "taken out on purpose");
}

#[test]
fn a_directory_that_goes_away_keeps_its_objects() {
    let mut b = Bench::new();
    b.write("a.yaml", &map("a", "1", ""));
    b.settled();
    fs::rename(b.dir(), b.home.path().join("away")).expect("rename");
    let found = b.settled();
    assert_eq!((held(&found), reasons(&found)), (vec!["a=1".to_owned()], vec!["Frozen"]));
    fs::create_dir(b.dir()).expect("mkdir");
    assert_eq!(held(&b.settled()), ["a=1"], "an empty mount point says nothing");
}

#[test]
fn of_two_objects_of_one_name_the_first_stays_and_the_other_follows() {
    let mut b = Bench::new();
    b.write("b.yaml", &map("a", "1", ""));
    b.settled();
    b.write("a.yaml", &map("a", "2", ""));
    let found = b.settled();
    assert_eq!((held(&found), reasons(&found)), (vec!["a=1".to_owned()], vec!["Duplicate"]));
    fs::remove_file(b.path("b.yaml")).expect("remove");
    assert_eq!(held(&b.settled()), ["a=2"]);
}

#[test]
fn an_immutable_object_changes_only_by_going_and_coming_back() {
    let mut b = Bench::new();
    b.write("a.yaml", &map("a", "1", "immutable: true\n"));
    b.settled();
    for text in [map("a", "2", "immutable: true\n"), map("a", "1", "")] {
        b.write("a.yaml", &text);
        let found = b.settled();
        assert_eq!((held(&found), reasons(&found)), (vec!["a=1".to_owned()], vec!["Invalid"]));
    }
    fs::remove_file(b.path("a.yaml")).expect("remove");
    assert!(held(&b.settled()).is_empty());
    b.write("a.yaml", &map("a", "2", "immutable: true\n"));
    assert_eq!(held(&b.settled()), ["a=2"]);
}

#[test]
fn a_claim_and_what_a_cluster_needs_are_remarks_and_keep_nothing() {
    let mut b = Bench::new();
    let claim =
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: d}\nspec: {storageClassName: x}\n";
    b.write("all.yaml", &format!("{claim}---\n{}", yaml("web", "i:1")));
    b.write("claim.yaml", claim);
    b.write("ns.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: n}\n");
    let found = b.settled();
    assert_eq!(running(&found), ["web=i:1"]);
    assert_eq!(reasons(&found), ["ManifestWarning", "ManifestWarning", "NotAPod"]);
    assert!(found.problems.iter().all(SourceProblem::is_remark), "{found:?}");
    b.write("all.yaml", claim);
    assert!(running(&b.settled()).is_empty(), "taken out on purpose");
}

#[test]
fn a_field_that_a_configmap_does_not_have_is_told() {
    let mut b = Bench::new();
    b.write("a.yaml", &map("a", "1", "Data: {b: c}\n"));
    let found = b.settled();
    assert_eq!((held(&found), reasons(&found)), (vec!["a=1".to_owned()], vec!["ManifestWarning"]));
    assert!(only(&found).message.contains("unknown field \"Data\""), "{found:?}");
}
