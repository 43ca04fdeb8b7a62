//! Requests and limits.

use super::{in_container, in_spec};

#[test]
fn resources_are_quantities_within_their_limits() {
    in_container(
        "resources: {limits: {cpu: 1x, memory: -1, pids: 5}, requests: {}}",
        &[
            "spec.containers[0].resources.limits[cpu]: Invalid value: \"1x\": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$' (such as 500m, 1.5 or 64Mi)",
            "spec.containers[0].resources.limits[memory]: Invalid value: \"-1\": must be greater than or equal to 0",
            "spec.containers[0].resources.limits[pids]: Invalid value: \"pids\": must be a standard resource type (cpu, memory, ephemeral-storage, hugepages-<size>) or fully qualified",
        ],
    );
    in_container(
        "resources: {limits: {cpu: 500m, memory: 1Gi}, requests: {cpu: 0.6, memory: 1024Mi}}",
        &[
            "spec.containers[0].resources.requests[cpu]: Invalid value: \"0.6\": must be less than or equal to cpu limit of 500m",
        ],
    );
    in_container(
        "resources: {limits: {a.b/c: 2}, requests: {a.b/c: 1}}",
        &[
            "spec.containers[0].resources.requests[a.b/c]: Invalid value: \"1\": must be equal to a.b/c limit of 2",
        ],
    );
    in_container(
        "resources: {limits: {a.b/c: 0.5}}",
        &["spec.containers[0].resources.limits[a.b/c]: Invalid value: \"0.5\": must be an integer"],
    );
}

#[test]
fn what_is_not_promised_twice_is_limited_to_what_is_requested() {
    in_container(
        "resources: {limits: {cpu: 1}, requests: {hugepages-2Mi: 2Mi, a.b/c: 1}}",
        &[
            "spec.containers[0].resources.limits[a.b/c]: Required value: must be set, to the 1 that is requested",
            "spec.containers[0].resources.limits[hugepages-2Mi]: Required value: must be set, to the 2Mi that is requested",
        ],
    );
    in_container(
        "resources: {limits: {cpu: 1, hugepages-2Mi: 4Mi}, requests: {hugepages-2Mi: 2Mi}}",
        &[
            "spec.containers[0].resources.requests[hugepages-2Mi]: Invalid value: \"2Mi\": must be equal to hugepages-2Mi limit of 4Mi",
        ],
    );
    in_container("resources: {limits: {a.b/c: 1}}", &[]);
}

#[test]
fn huge_pages_come_with_cpu_or_memory() {
    let said =
        "resources: Forbidden: huge pages can only be had with cpu or memory; add a request of one of them";
    in_container("resources: {limits: {hugepages-2Mi: 2Mi}}", &[&format!("spec.containers[0].{said}")]);
    in_spec("resources: {limits: {hugepages-2Mi: 2Mi}}", &[&format!("spec.{said}")]);
    in_container("resources: {limits: {hugepages-2Mi: 2Mi}, requests: {cpu: 1m}}", &[]);
}
