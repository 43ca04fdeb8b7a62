//! Manifests, as text: what a test says is what podling reads.

/// A pod with this `spec`, written as a YAML block (any common indentation).
pub fn pod(name: &str, spec: &str) -> String {
    let margin = spec.lines().filter(|l| !l.trim().is_empty()).map(|l| l.len() - l.trim_start().len()).min();
    let mut text = format!("apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n");
    for line in spec.lines().filter(|l| !l.trim().is_empty()) {
        text.push_str("  ");
        text.push_str(&line[margin.unwrap_or(0)..]);
        text.push('\n');
    }
    text
}

/// A pod on the host's network with one container `main` that runs a script. `more` is added to the pod's spec,
/// as lines of YAML.
///
/// On the host's network, because most scenarios are not about addresses and start faster without a bridge.
pub fn shell(name: &str, script: &str, more: &str) -> String {
    let script = serde_json::to_string(script).expect("a string can be JSON");
    let mut spec = String::from("hostNetwork: true\n");
    if !more.contains("terminationGracePeriodSeconds") {
        spec.push_str("terminationGracePeriodSeconds: 3\n");
    }
    for line in more.lines() {
        spec.push_str(line.trim_end());
        spec.push('\n');
    }
    spec.push_str("containers:\n- name: main\n  image: test/shell:1\n  command: [sh, -c]\n");
    spec.push_str(&format!("  args: [{script}]\n"));
    pod(name, &spec)
}

/// A script that runs until TERM and then ends at once.
pub const SLEEP: &str = "trap 'exit 0' TERM; sleep 1d & wait";

/// A pod that does nothing until it is stopped, which then takes no time.
pub fn sleeper(name: &str) -> String {
    shell(name, SLEEP, "")
}
