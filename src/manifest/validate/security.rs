//! Security contexts of pods and containers.

use k8s_openapi::api::core::v1::{
    AppArmorProfile, PodSecurityContext, PodSpec, SeccompProfile, SecurityContext, Sysctl,
};

use super::container::Surroundings;
use super::words::{Refuse, one_of, unique};
use crate::manifest::objects::Code;
use crate::manifest::positions::{Findings, Path};

/// Largest user and group id that containers may ask for.
const MAX_ID: i64 = i32::MAX as i64;
/// The kernel's capabilities (`linux/capability.h`), and the word for all of them.
const CAPABILITIES: &[&str] = &[
    "ALL",
    "AUDIT_CONTROL",
    "AUDIT_READ",
    "AUDIT_WRITE",
    "BLOCK_SUSPEND",
    "BPF",
    "CHECKPOINT_RESTORE",
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "IPC_LOCK",
    "IPC_OWNER",
    "KILL",
    "LEASE",
    "LINUX_IMMUTABLE",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
    "MKNOD",
    "NET_ADMIN",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_RAW",
    "PERFMON",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYSLOG",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_CHROOT",
    "SYS_MODULE",
    "SYS_NICE",
    "SYS_PACCT",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "WAKE_ALARM",
];

/// Checks the pod's security context.
pub fn pod(spec: &PodSpec, path: &Path, findings: &mut Findings<'_>) {
    let Some(context) = &spec.security_context else { return };
    let path = path.field("securityContext");
    id(context.run_as_user, &path.field("runAsUser"), findings);
    id(context.run_as_group, &path.field("runAsGroup"), findings);
    id(context.fs_group, &path.field("fsGroup"), findings);
    for (i, group) in context.supplemental_groups.iter().flatten().enumerate() {
        id(Some(*group), &path.field("supplementalGroups").index(i), findings);
    }
    non_root(context.run_as_non_root, context.run_as_user, &path, findings);
    let policies: [(&str, &Option<String>, &[&str]); 3] = [
        ("fsGroupChangePolicy", &context.fs_group_change_policy, &["Always", "OnRootMismatch"]),
        ("supplementalGroupsPolicy", &context.supplemental_groups_policy, &["Merge", "Strict"]),
        ("seLinuxChangePolicy", &context.se_linux_change_policy, &["MountOption", "Recursive"]),
    ];
    for (field, value, allowed) in policies {
        one_of(findings, &path.field(field), value.as_deref(), allowed);
    }
    profiles(context.seccomp_profile.as_ref(), context.app_armor_profile.as_ref(), &path, findings);
    sysctls(context, spec, &path.field("sysctls"), findings);
}

/// A pod that says it is for Linux cannot have what is for Windows.
pub fn not_of_windows(spec: &PodSpec, path: &Path, findings: &mut Findings<'_>) {
    let mut set = Vec::new();
    if spec.security_context.as_ref().is_some_and(|context| context.windows_options.is_some()) {
        set.push(path.clone());
    }
    for (field, containers) in
        [("initContainers", spec.init_containers.as_deref()), ("containers", Some(&spec.containers[..]))]
    {
        for (i, container) in containers.unwrap_or_default().iter().enumerate() {
            if container.security_context.as_ref().is_some_and(|context| context.windows_options.is_some()) {
                set.push(path.field(field).index(i));
            }
        }
    }
    for path in set {
        let at = path.field("securityContext").field("windowsOptions");
        findings.forbidden(&at, "may not be set for a pod whose `spec.os.name` is linux");
    }
}

/// Checks a container's security context.
pub fn container(
    context: &SecurityContext,
    around: &Surroundings<'_>,
    path: &Path,
    findings: &mut Findings<'_>,
) {
    id(context.run_as_user, &path.field("runAsUser"), findings);
    id(context.run_as_group, &path.field("runAsGroup"), findings);
    let wanted = context.run_as_non_root.or(around.pod_non_root.then_some(true));
    non_root(wanted, context.run_as_user, path, findings);
    profiles(context.seccomp_profile.as_ref(), context.app_armor_profile.as_ref(), path, findings);
    let added = context.capabilities.as_ref().and_then(|caps| caps.add.as_deref()).unwrap_or_default();
    if context.allow_privilege_escalation == Some(false) {
        let at = path.field("allowPrivilegeEscalation");
        if context.privileged == Some(true) {
            findings.invalid(
                &at,
                false,
                "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
            );
        }
        if added.iter().any(|cap| cap == "CAP_SYS_ADMIN") {
            findings.invalid(
                &at,
                false,
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
            );
        }
    }
    let at = path.field("procMount");
    let mount = context.proc_mount.as_deref().filter(|mount| !mount.is_empty());
    one_of(findings, &at, mount, &["Default", "Unmasked"]);
    if mount == Some("Unmasked") && !around.user_namespace {
        findings.invalid(&at, "Unmasked", "`hostUsers` must be false to use `Unmasked`");
    }
    let dropped = context.capabilities.as_ref().and_then(|caps| caps.drop.as_deref()).unwrap_or_default();
    for (field, names) in [("add", added), ("drop", dropped)] {
        for (i, name) in names.iter().enumerate() {
            capability(name, &path.field("capabilities").field(field).index(i), findings);
        }
    }
}

/// Names are taken with and without `CAP_`, in any case, as container runtimes do.
fn capability(name: &str, path: &Path, findings: &mut Findings<'_>) {
    let upper = name.to_ascii_uppercase();
    if !CAPABILITIES.contains(&upper.strip_prefix("CAP_").unwrap_or(&upper)) {
        findings.invalid(
            path,
            name,
            "the kernel knows no such capability; names are such as NET_ADMIN, or ALL",
        );
    }
}

fn id(id: Option<i64>, path: &Path, findings: &mut Findings<'_>) {
    if let Some(id) = id.filter(|id| !(0..=MAX_ID).contains(id)) {
        findings.invalid(path, id, "must be between 0 and 2147483647, inclusive");
    }
}

/// A container that must not be root but is told to be: legal for the API, refused at its start.
fn non_root(non_root: Option<bool>, user: Option<i64>, path: &Path, findings: &mut Findings<'_>) {
    if non_root == Some(true) && user == Some(0) {
        let text = "runAsUser 0 is root, while runAsNonRoot is true: no container can start like this";
        findings.warn(Code::NoEffect, &path.field("runAsUser"), text);
    }
}

fn profiles(
    seccomp: Option<&SeccompProfile>,
    apparmor: Option<&AppArmorProfile>,
    path: &Path,
    findings: &mut Findings<'_>,
) {
    if let Some(profile) = seccomp {
        let file = profile.localhost_profile.as_deref();
        profile_type(&profile.type_, file, true, &path.field("seccompProfile"), findings);
    }
    if let Some(profile) = apparmor {
        let file = profile.localhost_profile.as_deref();
        profile_type(&profile.type_, file, false, &path.field("appArmorProfile"), findings);
    }
}

fn profile_type(kind: &str, file: Option<&str>, is_file: bool, path: &Path, findings: &mut Findings<'_>) {
    if kind.is_empty() {
        findings.required(&path.field("type"), "");
    } else {
        one_of(findings, &path.field("type"), Some(kind), &["Localhost", "RuntimeDefault", "Unconfined"]);
    }
    let path = path.field("localhostProfile");
    match file.filter(|file| !file.is_empty()) {
        Some(file) if kind == "Localhost" => localhost(file, is_file, &path, findings),
        None if kind == "Localhost" => findings.required(&path, "must be set when type is Localhost"),
        Some(_) if kind != "Localhost" => {
            findings.error(Code::Invalid, &path, "Forbidden: can only be set when type is Localhost");
        }
        _ => {}
    }
}

/// Seccomp profiles are files below a directory, AppArmor profiles have names in the kernel.
fn localhost(profile: &str, is_file: bool, path: &Path, findings: &mut Findings<'_>) {
    if is_file && profile.starts_with('/') {
        findings.invalid(path, profile, "must be a relative path");
    } else if is_file && profile.split('/').any(|part| part == "..") {
        findings.invalid(path, profile, "must not contain '..'");
    } else if !is_file && profile.trim() != profile {
        findings.invalid(path, profile, "must not be padded with whitespace");
    }
}

fn sysctls(context: &PodSecurityContext, spec: &PodSpec, path: &Path, findings: &mut Findings<'_>) {
    let sysctls = context.sysctls.as_deref().unwrap_or_default();
    for (i, sysctl) in sysctls.iter().enumerate() {
        let at = path.index(i).field("name");
        let name = sysctl.name.as_str();
        if name.is_empty() {
            findings.required(&at, "");
        } else if !is_sysctl(name) {
            findings.invalid(&at, name, "must be such as net.core.somaxconn or net/core/somaxconn");
        } else if spec.host_network == Some(true) && starts(sysctl, &["net."]) {
            findings.invalid(&at, name, "may not be specified when 'hostNetwork' is true");
        } else if spec.host_ipc == Some(true)
            && starts(sysctl, &["kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."])
        {
            findings.invalid(&at, name, "may not be specified when 'hostIPC' is true");
        }
    }
    let names =
        sysctls.iter().enumerate().map(|(i, s)| (s.name.replace('/', "."), path.index(i).field("name")));
    unique(names, |name, at, first| findings.duplicate(at, name.as_str(), &first.to_string()));
}

fn starts(sysctl: &Sysctl, prefixes: &[&str]) -> bool {
    let name = sysctl.name.replace('/', ".");
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

fn is_sysctl(name: &str) -> bool {
    let part = |part: &str| {
        let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        edge(part.as_bytes().first())
            && edge(part.as_bytes().last())
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b))
    };
    name.len() <= 253 && name.split(['.', '/']).all(part)
}
