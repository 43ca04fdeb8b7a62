//! The container that holds the shared process namespace of a pod (`shareProcessNamespace`).

use std::collections::HashSet;
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use oci_spec::runtime::{LinuxCpu, LinuxResources, Root, Spec, User};

use super::mounts::{self, Propagation};
use super::qos::{MIN_SHARES, SANDBOX_OOM_SCORE};
use super::{
    PidNamespace, SandboxPaths, annotations, bare_linux, bare_spec, capabilities, map_ids, namespaces,
    process, resources, seccomp, security, sysctls,
};
use crate::system::node::NodeFeatures;

/// All that the spec of the pause container depends on.
#[derive(Clone, Copy, Debug)]
pub struct PauseInput<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Its uid.
    pub uid: &'a str,
    /// What its containers share; the process namespace is made here, whatever is said there.
    pub sandbox: &'a SandboxPaths,
    /// An empty directory to be the root file system; mount points appear in it.
    pub rootfs: &'a Path,
    /// The statically linked program on the host.
    pub binary: &'a Path,
    /// `cgroupsPath`.
    pub cgroup_path: &'a str,
    /// The machine.
    pub node: &'a NodeFeatures,
}

/// Where the program is in the container.
const PROGRAM: &str = "/podling-pause";

/// Describes the pause container: one process that reaps the others' zombies and may do nothing else.
pub fn pause(input: &PauseInput<'_>) -> Spec {
    let rights = HashSet::new();
    let mut root = Root::default();
    root.set_path(input.rootfs.to_owned()).set_readonly(Some(true));

    let mut cpu = LinuxCpu::default();
    cpu.set_shares(Some(MIN_SHARES));
    let mut limits = LinuxResources::default();
    limits.set_devices(Some(resources::device_rules(false))).set_cpu(Some(cpu));

    let sandbox = SandboxPaths { pid: PidNamespace::Own, ..input.sandbox.clone() };
    let mut linux = bare_linux();
    linux
        .set_namespaces(Some(namespaces(&sandbox, input.node, false)))
        .set_cgroups_path(Some(input.cgroup_path.into()))
        .set_resources(Some(limits))
        .set_sysctl(sysctls(input.pod, &sandbox))
        .set_seccomp(input.node.seccomp.then(|| seccomp::default_profile(&rights)))
        .set_masked_paths(Some(security::masked_paths(input.node)))
        .set_readonly_paths(Some(security::read_only_paths()));

    map_ids(&mut linux, &sandbox);

    let mut program = process::bare();
    program
        .set_user(User::default())
        .set_args(Some(vec![PROGRAM.to_owned()]))
        .set_env(Some(Vec::new()))
        .set_cwd("/".into())
        .set_capabilities(Some(capabilities::sets(&rights)))
        .set_no_new_privileges(Some(true))
        .set_apparmor_profile(input.node.apparmor_profile.clone())
        .set_oom_score_adj(Some(input.node.clamp_oom_score_adj(SANDBOX_OOM_SCORE)));

    let mut all = mounts::kernel_mounts(false);
    all.push(mounts::bind(PROGRAM.into(), input.binary, true, Propagation::Private));
    let mut spec = bare_spec();
    spec.set_root(Some(root))
        .set_process(Some(program))
        .set_mounts(Some(all))
        .set_annotations(Some(annotations::shared(input.pod, input.uid, input.sandbox, "sandbox")))
        .set_linux(Some(linux));
    spec
}
