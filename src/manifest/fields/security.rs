//! Security contexts.

use super::Shape::{Bool, Int64, Int64s, Objects, Text, Texts};
use super::{HONOURED, Lit, Object, Shape, Support, f, warned};

/// For what only Windows knows.
const WINDOWS: Support = warned("it has no meaning on Linux");
/// On SELinux labels.
const SELINUX_NOTE: &str = "On a host without SELinux it has no effect, and an event says so. The label is set on \
    processes and on the container's own files, not on volumes";

/// `PodSecurityContext`.
pub static POD_SECURITY_CONTEXT: Object = Object {
    name: "PodSecurityContext",
    fields: &[
        f("appArmorProfile", Shape::Object(&APP_ARMOR_PROFILE), HONOURED),
        f("fsGroup", Int64, HONOURED),
        f("fsGroupChangePolicy", Text, HONOURED),
        f("runAsGroup", Int64, HONOURED),
        f("runAsNonRoot", Bool, HONOURED).note("Checked when the container starts"),
        f("runAsUser", Int64, HONOURED),
        f(
            "seLinuxChangePolicy",
            Text,
            warned("it says how volumes are labelled, and volumes keep the labels they have"),
        ),
        f("seLinuxOptions", Shape::Object(&SE_LINUX_OPTIONS), HONOURED).note(SELINUX_NOTE),
        f("seccompProfile", Shape::Object(&SECCOMP_PROFILE), HONOURED),
        f("supplementalGroups", Int64s, HONOURED),
        f("supplementalGroupsPolicy", Text, HONOURED),
        f("sysctls", Objects(&SYSCTL), HONOURED)
            .note("The kubelet's safe ones, and those that `allowedUnsafeSysctls` in the settings names"),
        f("windowsOptions", Shape::Object(&WINDOWS_SECURITY_CONTEXT_OPTIONS), WINDOWS)
            .but(&[(Lit::Empty, HONOURED)]),
    ],
};

/// `SecurityContext`.
pub static SECURITY_CONTEXT: Object = Object {
    name: "SecurityContext",
    fields: &[
        f("allowPrivilegeEscalation", Bool, HONOURED),
        f("appArmorProfile", Shape::Object(&APP_ARMOR_PROFILE), HONOURED),
        f("capabilities", Shape::Object(&CAPABILITIES), HONOURED),
        f("privileged", Bool, HONOURED),
        f("procMount", Text, HONOURED).note("`Unmasked` needs `hostUsers: false`, as the API has it"),
        f("readOnlyRootFilesystem", Bool, HONOURED),
        f("runAsGroup", Int64, HONOURED),
        f("runAsNonRoot", Bool, HONOURED).note("Checked when the container starts"),
        f("runAsUser", Int64, HONOURED),
        f("seLinuxOptions", Shape::Object(&SE_LINUX_OPTIONS), HONOURED).note(SELINUX_NOTE),
        f("seccompProfile", Shape::Object(&SECCOMP_PROFILE), HONOURED),
        f("windowsOptions", Shape::Object(&WINDOWS_SECURITY_CONTEXT_OPTIONS), WINDOWS)
            .but(&[(Lit::Empty, HONOURED)]),
    ],
};

/// `AppArmorProfile`.
pub static APP_ARMOR_PROFILE: Object = Object {
    name: "AppArmorProfile",
    fields: &[
        f("localhostProfile", Text, HONOURED),
        f("type", Text, HONOURED)
            .note(
                "`RuntimeDefault` is a profile that podling loads, `podling-default-1`; on a host without AppArmor it is \
                 without effect and `Localhost` waits",
            ),
    ],
};

/// `Capabilities`.
pub static CAPABILITIES: Object =
    Object { name: "Capabilities", fields: &[f("add", Texts, HONOURED), f("drop", Texts, HONOURED)] };

/// `SELinuxOptions`.
pub static SE_LINUX_OPTIONS: Object = Object {
    name: "SELinuxOptions",
    fields: &[
        f("level", Text, HONOURED),
        f("role", Text, HONOURED),
        f("type", Text, HONOURED),
        f("user", Text, HONOURED),
    ],
};

/// `SeccompProfile`.
pub static SECCOMP_PROFILE: Object = Object {
    name: "SeccompProfile",
    fields: &[
        f("localhostProfile", Text, HONOURED).note("Below `seccompProfileRoot` of the settings"),
        f("type", Text, HONOURED),
    ],
};

/// `WindowsSecurityContextOptions`.
pub static WINDOWS_SECURITY_CONTEXT_OPTIONS: Object = Object {
    name: "WindowsSecurityContextOptions",
    fields: &[
        f("gmsaCredentialSpec", Text, HONOURED),
        f("gmsaCredentialSpecName", Text, HONOURED),
        f("hostProcess", Bool, HONOURED),
        f("runAsUserName", Text, HONOURED),
    ],
};

/// `Sysctl`.
pub static SYSCTL: Object =
    Object { name: "Sysctl", fields: &[f("name", Text, HONOURED), f("value", Text, HONOURED)] };
