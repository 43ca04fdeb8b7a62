//! Which OCI runtime a container uses, and the options message that carries it to the shim.

use prost::Message;
use prost_types::Any;

/// The runtime of a container: containerd's shim and, behind it, the OCI runtime binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OciRuntime {
    /// containerd's name of the runtime, as `io.containerd.runc.v2`.
    pub name: String,
    /// The OCI runtime binary; none is the shim's default, `runc`.
    pub binary: Option<String>,
    /// Cgroups through systemd instead of the cgroup file system.
    pub systemd_cgroup: bool,
    /// An existing cgroup for the shim itself. On cgroup v1 it must exist in every hierarchy.
    pub shim_cgroup: Option<String>,
    /// Directory of the OCI runtime's own state; none is the shim's default, which two containerds that
    /// use one namespace name on one host share.
    pub root: Option<String>,
}

/// containerd's runtime for runc and what is compatible with it.
pub const RUNC_V2: &str = "io.containerd.runc.v2";

impl Default for OciRuntime {
    fn default() -> Self {
        Self { name: RUNC_V2.to_owned(), binary: None, systemd_cgroup: false, shim_cgroup: None, root: None }
    }
}

/// `containerd.runc.v1.Options`, the part of it that is used here. containerd-client does not compile
/// this message; the tags are those of containerd's `api/types/runc/options/oci.proto`.
#[derive(Clone, PartialEq, Message)]
struct Options {
    #[prost(string, tag = "3")]
    shim_cgroup: String,
    #[prost(string, tag = "6")]
    binary_name: String,
    #[prost(string, tag = "7")]
    root: String,
    #[prost(bool, tag = "9")]
    systemd_cgroup: bool,
}

impl OciRuntime {
    /// The options as the shim wants them; none when all are the defaults, or for another shim, whose
    /// options have another type.
    pub(crate) fn options(&self) -> Option<Any> {
        if self.name != RUNC_V2 {
            return None;
        }
        let options = Options {
            shim_cgroup: self.shim_cgroup.clone().unwrap_or_default(),
            binary_name: self.binary.clone().unwrap_or_default(),
            root: self.root.clone().unwrap_or_default(),
            systemd_cgroup: self.systemd_cgroup,
        };
        // The bare name: containerd looks types up without any URL before them.
        let type_url = "containerd.runc.v1.Options".to_owned();
        (options != Options::default()).then(|| Any { type_url, value: options.encode_to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_runtime_sends_no_options() {
        assert_eq!(OciRuntime::default().options(), None);
    }

    #[test]
    fn options_carry_the_binary_under_the_bare_type_name() {
        let runtime = OciRuntime {
            binary: Some("crun".into()),
            systemd_cgroup: true,
            shim_cgroup: Some("/p".into()),
            ..OciRuntime::default()
        };
        let any = runtime.options().unwrap();
        assert_eq!(any.type_url, "containerd.runc.v1.Options");
        assert_eq!(any.value, b"\x1a\x02/p\x32\x04crun\x48\x01");
    }

    #[test]
    fn a_foreign_shim_gets_no_runc_options() {
        let runtime = OciRuntime {
            name: "io.containerd.kata.v2".into(),
            binary: Some("x".into()),
            ..Default::default()
        };
        assert_eq!(runtime.options(), None);
    }
}
