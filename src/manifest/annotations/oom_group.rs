//! `podling.dev/oom-group`: whether a container that runs out of memory dies as a whole.

use k8s_openapi::api::core::v1::Pod;

pub(super) fn check(text: &str, _: &Pod) -> Result<(), String> {
    parse(text).map(drop)
}

fn parse(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("must be \"true\" or \"false\"".to_owned()),
    }
}

/// Whether all processes of the container die when the kernel kills one for want of memory (cgroup version 2).
pub fn oom_group(pod: &Pod, container: &str) -> bool {
    super::container_value(pod, "oom-group", container).is_none_or(|v| parse(v) != Ok(false))
}
