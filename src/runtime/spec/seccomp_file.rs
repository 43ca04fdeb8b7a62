//! Seccomp profiles from files: the form of the OCI runtime specification, and Docker's wider one with
//! `archMap`, `includes` and `excludes`, which is made plain here for one container on one machine.

use std::collections::HashSet;
use std::path::PathBuf;
use std::str::FromStr;

use oci_spec::runtime::{
    Arch, Capability, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompFilterFlag, LinuxSyscall,
};
use serde::Deserialize;

use crate::system::node::kernel_version;

/// A profile as it lies on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeccompFile {
    /// Where.
    pub path: PathBuf,
    /// What it holds.
    pub text: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    default_action: LinuxSeccompAction,
    default_errno_ret: Option<u32>,
    architectures: Option<Vec<Arch>>,
    arch_map: Option<Vec<ArchMap>>,
    flags: Option<Vec<LinuxSeccompFilterFlag>>,
    listener_path: Option<PathBuf>,
    listener_metadata: Option<String>,
    syscalls: Option<Vec<Rule>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArchMap {
    architecture: Arch,
    sub_architectures: Option<Vec<Arch>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    /// The form of old Docker profiles: one call a rule.
    name: Option<String>,
    names: Option<Vec<String>>,
    action: LinuxSeccompAction,
    errno_ret: Option<u32>,
    args: Option<Vec<LinuxSeccompArg>>,
    includes: Option<Condition>,
    excludes: Option<Condition>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    caps: Option<Vec<String>>,
    arches: Option<Vec<String>>,
    min_kernel: Option<String>,
}

/// Where a profile is to hold.
pub(super) struct Target<'a> {
    pub capabilities: &'a HashSet<Capability>,
    /// As `std::env::consts::ARCH` has it.
    pub machine: &'a str,
    /// Major and minor number of the kernel.
    pub kernel: (u32, u32),
}

/// Reads a profile.
///
/// # Errors
/// What is wrong, with line and column where the JSON itself is.
pub(super) fn parse(text: &str, target: &Target<'_>) -> Result<LinuxSeccomp, String> {
    let profile: Profile = serde_json::from_str(text).map_err(|e| e.to_string())?;
    if profile.architectures.as_ref().is_some_and(|a| !a.is_empty())
        && profile.arch_map.as_ref().is_some_and(|a| !a.is_empty())
    {
        return Err("it has both architectures and archMap, which say the same: keep one".to_owned());
    }
    let mut rules = Vec::new();
    for (i, rule) in profile.syscalls.into_iter().flatten().enumerate() {
        rules.extend(rule.plain(target).map_err(|e| format!("syscalls[{i}]: {e}"))?);
    }
    let mut seccomp = LinuxSeccomp::default();
    seccomp
        .set_default_action(profile.default_action)
        .set_default_errno_ret(profile.default_errno_ret)
        .set_architectures(profile.architectures.or_else(|| mapped(profile.arch_map, target.machine)))
        .set_flags(profile.flags.filter(|f| !f.is_empty()))
        .set_listener_path(profile.listener_path)
        .set_listener_metadata(profile.listener_metadata)
        .set_syscalls(Some(rules).filter(|r| !r.is_empty()));
    Ok(seccomp)
}

/// The entry of this machine's instruction set, with the older ones it also runs.
fn mapped(map: Option<Vec<ArchMap>>, machine: &str) -> Option<Vec<Arch>> {
    let own = super::seccomp::architectures(machine).first().copied()?;
    let entry = map?.into_iter().find(|entry| entry.architecture == own)?;
    Some([own].into_iter().chain(entry.sub_architectures.into_iter().flatten()).collect())
}

impl Rule {
    /// The rule without its conditions; none where they do not hold.
    fn plain(self, target: &Target<'_>) -> Result<Option<LinuxSyscall>, String> {
        let names: Vec<String> = self.names.into_iter().flatten().chain(self.name).collect();
        if names.is_empty() {
            return Err("names is empty".to_owned());
        }
        let included = self.includes.map_or(Ok(true), |c| c.holds(target, true))?;
        let excluded = self.excludes.map_or(Ok(false), |c| c.holds(target, false))?;
        if !included || excluded {
            return Ok(None);
        }
        let mut rule = LinuxSyscall::default();
        rule.set_names(names)
            .set_action(self.action)
            .set_errno_ret(self.errno_ret)
            .set_args(self.args.filter(|a| !a.is_empty()));
        Ok(Some(rule))
    }
}

impl Condition {
    /// Whether it holds: all of it is needed to include a rule, any of it excludes one.
    fn holds(&self, target: &Target<'_>, all: bool) -> Result<bool, String> {
        let mut parts = Vec::new();
        if let Some(arches) = self.arches.as_ref().filter(|a| !a.is_empty()) {
            parts.push(arches.iter().any(|a| a == go_arch(target.machine)));
        }
        for name in self.caps.iter().flatten() {
            let upper = name.to_uppercase();
            let capability = Capability::from_str(upper.strip_prefix("CAP_").unwrap_or(&upper));
            // One that this build does not know is one that the container does not have.
            parts.push(capability.is_ok_and(|c| target.capabilities.contains(&c)));
        }
        if let Some(text) = &self.min_kernel {
            let wanted = kernel_version(text)
                .ok_or_else(|| format!("minKernel {text:?} is not a version such as 4.8"))?;
            parts.push(target.kernel >= wanted);
        }
        Ok(if all { parts.into_iter().all(|p| p) } else { parts.into_iter().any(|p| p) })
    }
}

fn go_arch(machine: &str) -> &str {
    match machine {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        "loongarch64" => "loong64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str, capabilities: &[Capability], machine: &str) -> Result<LinuxSeccomp, String> {
        let capabilities = capabilities.iter().copied().collect();
        parse(text, &Target { capabilities: &capabilities, machine, kernel: (6, 1) })
    }

    fn calls(seccomp: &LinuxSeccomp) -> Vec<String> {
        seccomp.syscalls().iter().flatten().flat_map(|r| r.names().clone()).collect()
    }

    #[test]
    fn an_oci_profile_is_taken_as_it_is() {
        let text = r#"{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38,
            "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X32"], "flags": ["SECCOMP_FILTER_FLAG_LOG"],
            "syscalls": [{"names": ["read", "write"], "action": "SCMP_ACT_ALLOW", "comment": "ignored"},
              {"names": ["socket"], "action": "SCMP_ACT_ERRNO", "errnoRet": 97,
               "args": [{"index": 0, "value": 16, "valueTwo": 0, "op": "SCMP_CMP_EQ"}]}]}"#;
        let want = json!({
            "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38,
            "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X32"], "flags": ["SECCOMP_FILTER_FLAG_LOG"],
            "syscalls": [{"names": ["read", "write"], "action": "SCMP_ACT_ALLOW"},
              {"names": ["socket"], "action": "SCMP_ACT_ERRNO", "errnoRet": 97,
               "args": [{"index": 0, "value": 16, "valueTwo": 0, "op": "SCMP_CMP_EQ"}]}]
        });
        assert_eq!(serde_json::to_value(read(text, &[], "x86_64").unwrap()).unwrap(), want);
        let least = read(r#"{"defaultAction": "SCMP_ACT_LOG"}"#, &[], "x86_64").unwrap();
        assert_eq!(serde_json::to_value(least).unwrap(), json!({"defaultAction": "SCMP_ACT_LOG"}));
    }

    #[test]
    fn the_map_of_architectures_gives_those_of_the_machine() {
        let text = r#"{"defaultAction": "SCMP_ACT_ALLOW", "archMap": [
            {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]},
            {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": null}]}"#;
        let arches = |machine| read(text, &[], machine).unwrap().architectures().clone();
        assert_eq!(arches("x86_64"), Some(vec![Arch::ScmpArchX86_64, Arch::ScmpArchX86]));
        assert_eq!(arches("aarch64"), Some(vec![Arch::ScmpArchAarch64]));
        assert_eq!(arches("s390x"), None);
    }

    #[test]
    fn conditions_choose_the_rules() {
        let rule = |name: &str, conditions: serde_json::Value| {
            let mut rule = json!({"names": [name], "action": "SCMP_ACT_ALLOW"});
            rule.as_object_mut().unwrap().extend(conditions.as_object().unwrap().clone());
            rule
        };
        let text = json!({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
            rule("plain", json!({"includes": {}, "excludes": {}})),
            rule("admin", json!({"includes": {"caps": ["CAP_SYS_ADMIN"]}})),
            rule("no-admin", json!({"excludes": {"caps": ["CAP_SYS_ADMIN"]}})),
            rule("amd", json!({"includes": {"arches": ["amd64", "x32"]}})),
            rule("no-amd", json!({"excludes": {"arches": ["amd64"]}})),
            rule("new", json!({"includes": {"minKernel": "4.8"}})),
            rule("newer", json!({"includes": {"minKernel": "6.10"}})),
            json!({"name": "old-form", "action": "SCMP_ACT_ALLOW"}),
        ]})
        .to_string();
        assert_eq!(
            calls(&read(&text, &[], "x86_64").unwrap()),
            ["plain", "no-admin", "amd", "new", "old-form"]
        );
        assert_eq!(
            calls(&read(&text, &[Capability::SysAdmin], "aarch64").unwrap()),
            ["plain", "admin", "no-amd", "new", "old-form"]
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        let cases = [
            ("{", "EOF while parsing an object at line 1 column 1"),
            (r#"{"syscalls": []}"#, "missing field `defaultAction` at line 1 column 16"),
            (
                r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"action": "SCMP_ACT_LOG"}]}"#,
                "syscalls[0]: names is empty",
            ),
        ];
        for (text, want) in cases {
            assert_eq!(read(text, &[], "x86_64").unwrap_err(), want);
        }
        let unknown = read(r#"{"defaultAction": "SCMP_ACT_NOPE"}"#, &[], "x86_64").unwrap_err();
        assert!(unknown.contains("SCMP_ACT_NOPE") && unknown.contains("SCMP_ACT_ALLOW"), "{unknown}");
    }
}
