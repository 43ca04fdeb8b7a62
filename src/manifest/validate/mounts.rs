//! Where a container mounts the pod's volumes.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{Container, Volume, VolumeMount};

use super::words::{Refuse, one_of, unique};
use crate::manifest::objects::Code;
use crate::manifest::positions::{Findings, Path};

/// Checks the mounts of one container against the names of the pod's volumes.
pub fn check(container: &Container, volumes: &HashSet<&str>, path: &Path, findings: &mut Findings<'_>) {
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    let path = path.field("volumeMounts");
    let privileged =
        container.security_context.as_ref().is_some_and(|context| context.privileged == Some(true));
    for (i, mount) in mounts.iter().enumerate() {
        check_mount(mount, volumes, privileged, &path.index(i), findings);
    }
    let paths = mounts.iter().enumerate().filter(|(_, mount)| !mount.mount_path.is_empty());
    let paths = paths.map(|(i, mount)| (mount.mount_path.as_str(), path.index(i).field("mountPath")));
    unique(paths, |value, at, first| {
        findings.invalid(at, *value, &format!("must be unique; {first} mounts there too"));
    });
}

fn check_mount(
    mount: &VolumeMount,
    volumes: &HashSet<&str>,
    privileged: bool,
    path: &Path,
    findings: &mut Findings<'_>,
) {
    if mount.name.is_empty() {
        findings.required(&path.field("name"), "");
    } else if !volumes.contains(mount.name.as_str()) {
        let mut known: Vec<&str> = volumes.iter().copied().collect();
        known.sort_unstable();
        let known = match known.len() {
            0 => "the pod has no volumes".to_owned(),
            1..=12 => format!("the pod's volumes are {}", known.join(", ")),
            n => format!("none of the pod's {n} volumes has this name"),
        };
        findings.not_found(&path.field("name"), &mount.name, &known);
    }
    if mount.mount_path.is_empty() {
        findings.required(&path.field("mountPath"), "");
    } else if mount.mount_path.contains('\0') {
        findings.invalid(&path.field("mountPath"), mount.mount_path.as_str(), "must not contain NUL");
    } else if mount.mount_path.split('/').all(|part| part.is_empty() || part == ".") {
        // The API takes it, but no runtime can start such a container.
        let why = "must not be the root, which would hide the whole image";
        findings.invalid(&path.field("mountPath"), mount.mount_path.as_str(), why);
    } else if let Some((_, options)) = mount.mount_path.split_once(':') {
        let text = format!(
            "{options:?} is part of the path, as under a kubelet; options behind a colon are podman's: use readOnly \
            and bindMountOptions"
        );
        findings.warn(Code::NoEffect, &path.field("mountPath"), text);
    }
    for (name, sub) in [("subPath", &mount.sub_path), ("subPathExpr", &mount.sub_path_expr)] {
        let Some(sub) = sub.as_deref().filter(|sub| !sub.is_empty()) else { continue };
        if sub.starts_with('/') {
            findings.invalid(&path.field(name), sub, "must be a relative path");
        }
        if sub.split('/').any(|part| part == "..") {
            findings.invalid(&path.field(name), sub, "must not contain '..'");
        }
    }
    let set = |field: &Option<String>| field.as_deref().is_some_and(|text| !text.is_empty());
    if set(&mount.sub_path) && set(&mount.sub_path_expr) {
        findings.invalid(
            &path.field("subPathExpr"),
            mount.sub_path_expr.as_deref().unwrap_or_default(),
            "subPathExpr and subPath are mutually exclusive",
        );
    }
    options(mount, path, findings);
    propagation(mount, privileged, path, findings);
}

fn options(mount: &VolumeMount, path: &Path, findings: &mut Findings<'_>) {
    let path = path.field("bindMountOptions");
    let options = mount.bind_mount_options.as_deref().unwrap_or_default();
    for (i, option) in options.iter().enumerate() {
        one_of(findings, &path.index(i), Some(option.as_str()), &["noexec", "nodev", "nosuid"]);
    }
    let paths = options.iter().enumerate().map(|(i, option)| (option.as_str(), path.index(i)));
    unique(paths, |option, at, first| findings.duplicate(at, *option, &first.to_string()));
}

fn propagation(mount: &VolumeMount, privileged: bool, path: &Path, findings: &mut Findings<'_>) {
    let at = path.field("mountPropagation");
    let value = mount.mount_propagation.as_deref().filter(|value| !value.is_empty());
    one_of(findings, &at, value, &["Bidirectional", "HostToContainer", "None"]);
    if value == Some("Bidirectional") && !privileged {
        findings.forbidden(&at, "Bidirectional mount propagation is available only to privileged containers");
    }
    let at = path.field("recursiveReadOnly");
    let value = mount.recursive_read_only.as_deref().filter(|value| !value.is_empty());
    one_of(findings, &at, value, &["Disabled", "Enabled", "IfPossible"]);
    if value.is_some_and(|value| value != "Disabled") && mount.read_only != Some(true) {
        findings.forbidden(&at, "may only be specified when readOnly is true");
    }
    let passes = mount.mount_propagation.as_deref().is_some_and(|value| !matches!(value, "" | "None"));
    if value.is_some_and(|value| value != "Disabled") && passes {
        findings.forbidden(&at, "may only be specified when mountPropagation is None or not specified");
    }
}

/// Checks the block devices of one container.
pub fn check_devices(container: &Container, volumes: &[Volume], path: &Path, findings: &mut Findings<'_>) {
    let devices = container.volume_devices.as_deref().unwrap_or_default();
    let path = path.field("volumeDevices");
    for (i, device) in devices.iter().enumerate() {
        let path = path.index(i);
        let volume = volumes.iter().find(|volume| volume.name == device.name);
        let is_block = |volume: &Volume| {
            let kind = volume.host_path.as_ref().and_then(|host| host.type_.as_deref());
            volume.persistent_volume_claim.is_some() || kind == Some("BlockDevice")
        };
        match volume {
            _ if device.name.is_empty() => findings.required(&path.field("name"), ""),
            None => {
                findings.not_found(&path.field("name"), &device.name, "the pod has no volume of this name")
            }
            Some(volume) if !is_block(volume) => findings.invalid(
                &path.field("name"),
                device.name.as_str(),
                "can only use a persistentVolumeClaim, or a hostPath of type BlockDevice",
            ),
            Some(_) => {}
        }
        if device.device_path.is_empty() {
            findings.required(&path.field("devicePath"), "");
        } else if !device.device_path.starts_with('/')
            || device.device_path.split('/').any(|part| part == "..")
        {
            findings.invalid(
                &path.field("devicePath"),
                device.device_path.as_str(),
                "must be an absolute path and must not contain '..'",
            );
        }
        if container.volume_mounts.iter().flatten().any(|mount| mount.name == device.name) {
            findings.invalid(
                &path.field("name"),
                device.name.as_str(),
                "must not already exist in volumeMounts",
            );
        }
    }
    let paths = devices.iter().enumerate();
    let paths = paths.map(|(i, device)| (device.device_path.as_str(), path.index(i).field("devicePath")));
    unique(paths.filter(|(value, _)| !value.is_empty()), |value, at, first| {
        findings.invalid(at, *value, &format!("must be unique; {first} is there too"));
    });
}
