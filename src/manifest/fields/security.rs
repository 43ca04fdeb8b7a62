//! Security contexts.

use super::Shape::{Bool, Int64, Int64s, Objects, Text, Texts};
use super::{HONOURED, Lit, Object, Shape, Support, f, refused, warned};

/// For what only Windows knows.
const WINDOWS: Support = warned("it has no meaning on Linux");
/// For SELinux labels.
const SELINUX: Support =
    refused("SELinux labels are not set; the container would run with the default label");

/// `PodSecurityContext`.
pub static POD_SECURITY_CONTEXT: Object = Object {
    name: "PodSecurityContext",
    fields: &[
        f("appArmorProfile", Shape::Object(&APP_ARMOR_PROFILE), HONOURED),
        f("fsGroup", Int64, refused("the group of the volumes' files would not be set")),
        f("fsGroupChangePolicy", Text, warned("it only says how fsGroup is applied, which is not supported")),
        f("runAsGroup", Int64, HONOURED),
        f("runAsNonRoot", Bool, HONOURED).note("Checked when the container starts"),
        f("runAsUser", Int64, HONOURED),
        f(
            "seLinuxChangePolicy",
            Text,
            warned("it only says how seLinuxOptions are applied, which are not supported"),
        ),
        f("seLinuxOptions", Shape::Object(&SE_LINUX_OPTIONS), SELINUX).but(&[(Lit::Empty, HONOURED)]),
        f("seccompProfile", Shape::Object(&SECCOMP_PROFILE), HONOURED),
        f("supplementalGroups", Int64s, HONOURED),
        f("supplementalGroupsPolicy", Text, refused("the groups of the image's user are always added"))
            .but(&[(Lit::Text("Merge"), HONOURED)]),
        f("sysctls", Objects(&SYSCTL), refused("the pod would run with other kernel settings")),
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
        f("procMount", Text, refused("only the default /proc is offered"))
            .but(&[(Lit::Text("Default"), HONOURED), (Lit::Text(""), HONOURED)]),
        f("readOnlyRootFilesystem", Bool, HONOURED),
        f("runAsGroup", Int64, HONOURED),
        f("runAsNonRoot", Bool, HONOURED).note("Checked when the container starts"),
        f("runAsUser", Int64, HONOURED),
        f("seLinuxOptions", Shape::Object(&SE_LINUX_OPTIONS), SELINUX).but(&[(Lit::Empty, HONOURED)]),
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
        f("type", Text, refused("AppArmor profiles are not applied; the container would run unconfined"))
            .but(&[(Lit::Text("Unconfined"), HONOURED)]),
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
        f("localhostProfile", Text, HONOURED),
        f("type", Text, HONOURED).but(&[(
            Lit::Text("Localhost"),
            refused("profiles from files are not supported; use RuntimeDefault or Unconfined"),
        )]),
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
