//! The default profile, put together for a set of capabilities.

use std::collections::HashSet;

use oci_spec::runtime::{
    Arch, Capability, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompArgBuilder,
    LinuxSeccompOperator, LinuxSyscall,
};

use super::seccomp_default as data;

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;
/// Calls that every container may make.
const ALWAYS: [&[&str]; 6] = [
    data::FILES,
    data::MEMORY,
    data::PROCESSES,
    data::COMMUNICATION,
    data::WAITING,
    data::OTHER_ARCHITECTURES,
];

/// The filter for a container with these capabilities, on the architecture podling was built for.
pub(super) fn default_profile(capabilities: &HashSet<Capability>) -> LinuxSeccomp {
    let mut profile = LinuxSeccomp::default();
    profile
        .set_default_action(LinuxSeccompAction::ScmpActErrno)
        .set_default_errno_ret(Some(EPERM))
        .set_architectures(Some(architectures(std::env::consts::ARCH)))
        .set_syscalls(Some(rules(capabilities)));
    profile
}

fn rules(capabilities: &HashSet<Capability>) -> Vec<LinuxSyscall> {
    let mut names: Vec<&str> = ALWAYS.concat();
    for (capability, calls) in data::BY_CAPABILITY {
        if capabilities.contains(capability) {
            names.extend_from_slice(calls);
        }
    }
    names.sort_unstable();
    names.dedup();
    let mut rules = vec![allow(&names)];
    for value in data::PERSONALITIES {
        rules.push(allow_when(&["personality"], argument(0, value, None, LinuxSeccompOperator::ScmpCmpEq)));
    }
    rules.push(allow_when(&["socket"], argument(0, data::AF_VSOCK, None, LinuxSeccompOperator::ScmpCmpNe)));
    if !capabilities.contains(&Capability::SysAdmin) {
        // s390 has the flags in the second argument.
        let index = usize::from(std::env::consts::ARCH == "s390x");
        let no_namespaces =
            argument(index, data::CLONE_NAMESPACES, Some(0), LinuxSeccompOperator::ScmpCmpMaskedEq);
        rules.push(allow_when(&["clone"], no_namespaces));
        // The flags of clone3 are behind a pointer, where no filter sees them: C libraries that are told that
        // there is no such call fall back to clone.
        let mut clone3 = allow(&["clone3"]);
        clone3.set_action(LinuxSeccompAction::ScmpActErrno).set_errno_ret(Some(ENOSYS));
        rules.push(clone3);
    }
    rules
}

fn allow(names: &[&str]) -> LinuxSyscall {
    let mut rule = LinuxSyscall::default();
    rule.set_names(names.iter().map(|n| (*n).to_owned()).collect())
        .set_action(LinuxSeccompAction::ScmpActAllow)
        .set_errno_ret(None)
        .set_args(None);
    rule
}

fn allow_when(names: &[&str], argument: LinuxSeccompArg) -> LinuxSyscall {
    let mut rule = allow(names);
    rule.set_args(Some(vec![argument]));
    rule
}

fn argument(index: usize, value: u64, second: Option<u64>, op: LinuxSeccompOperator) -> LinuxSeccompArg {
    let mut builder = LinuxSeccompArgBuilder::default().index(index).value(value).op(op);
    if let Some(second) = second {
        builder = builder.value_two(second);
    }
    // Every field of this builder has a default, so there is nothing that could be missing.
    builder.build().expect("a builder with defaults builds")
}

/// The machine's own instruction set and the older ones that it also runs.
pub(super) fn architectures(machine: &str) -> Vec<Arch> {
    match machine {
        "x86_64" => vec![Arch::ScmpArchX86_64, Arch::ScmpArchX86, Arch::ScmpArchX32],
        "x86" => vec![Arch::ScmpArchX86],
        "aarch64" => vec![Arch::ScmpArchAarch64, Arch::ScmpArchArm],
        "arm" => vec![Arch::ScmpArchArm],
        "powerpc64" => vec![Arch::ScmpArchPpc64le],
        "s390x" => vec![Arch::ScmpArchS390x, Arch::ScmpArchS390],
        "riscv64" => vec![Arch::ScmpArchRiscv64],
        "loongarch64" => vec![Arch::ScmpArchLoongarch64],
        _ => vec![Arch::ScmpArchNative],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(capabilities: &[Capability]) -> HashSet<String> {
        let set = capabilities.iter().copied().collect();
        let always = rules(&set).into_iter().filter(|r| r.args().is_none());
        always
            .filter(|r| r.action() == LinuxSeccompAction::ScmpActAllow)
            .flat_map(|r| r.names().clone())
            .collect()
    }

    #[test]
    fn dangerous_calls_need_their_capability_or_are_never_allowed() {
        let plain = allowed(&[]);
        let never =
            ["add_key", "keyctl", "request_key", "io_uring_setup", "userfaultfd", "kexec_load", "swapon"];
        let guarded =
            ["mount", "setns", "unshare", "bpf", "reboot", "init_module", "clone", "clone3", "chroot"];
        for call in never.iter().chain(&guarded) {
            assert!(!plain.contains(*call), "{call}");
        }
        for call in ["read", "openat", "execve", "futex", "ptrace", "epoll_pwait2", "faccessat2", "rseq"] {
            assert!(plain.contains(call), "{call}");
        }
        let admin = allowed(&[Capability::SysAdmin]);
        assert!(admin.contains("mount") && admin.contains("clone3") && !admin.contains("keyctl"));
        assert!(allowed(&[Capability::SysChroot]).contains("chroot"));
    }

    #[test]
    fn without_sys_admin_clone_makes_no_namespaces_and_clone3_does_not_exist() {
        let rules = rules(&HashSet::new());
        let find = |name: &str| rules.iter().find(|r| r.names() == &[name.to_owned()]).unwrap();
        let argument = find("clone").args().as_ref().unwrap()[0];
        assert_eq!((argument.value(), argument.value_two()), (0x7e02_0000, Some(0)));
        assert_eq!(find("clone3").errno_ret(), Some(ENOSYS));
        let socket = find("socket").args().as_ref().unwrap()[0];
        assert_eq!((socket.value(), socket.op()), (40, LinuxSeccompOperator::ScmpCmpNe));
    }

    #[test]
    fn no_call_is_listed_twice() {
        let always = ALWAYS.concat();
        let unique: HashSet<&&str> = always.iter().collect();
        assert_eq!(unique.len(), always.len());
        for (_, calls) in data::BY_CAPABILITY {
            assert!(calls.iter().all(|c| !unique.contains(c)), "{calls:?}");
        }
    }

    #[test]
    fn older_instruction_sets_are_filtered_too() {
        assert_eq!(architectures("aarch64"), [Arch::ScmpArchAarch64, Arch::ScmpArchArm]);
        assert_eq!(architectures("x86_64").len(), 3);
        assert_eq!(architectures("sparc"), [Arch::ScmpArchNative]);
    }
}
