//! Containers, their environment, ports and mounts.

use super::Shape::{Bool, Int32, Int32s, Objects, Quantity, Text, Texts};
use super::probe::{LIFECYCLE, PROBE};
use super::resources::RESOURCE_REQUIREMENTS;
use super::security::SECURITY_CONTEXT;
use super::{HONOURED, Object, Shape, Support, f, refused};

/// For the three probes.
const PROBES: Support = refused("ephemeral containers have no probes");

/// `Container`.
pub static CONTAINER: Object = Object {
    name: "Container",
    fields: &[
        f("args", Texts, HONOURED),
        f("command", Texts, HONOURED),
        f("env", Objects(&ENV_VAR), HONOURED),
        f("envFrom", Objects(&ENV_FROM_SOURCE), HONOURED),
        f("image", Text, HONOURED),
        f("imagePullPolicy", Text, HONOURED),
        f("lifecycle", Shape::Object(&LIFECYCLE), HONOURED),
        f("livenessProbe", Shape::Object(&PROBE), HONOURED),
        f("name", Text, HONOURED),
        f("ports", Objects(&CONTAINER_PORT), HONOURED),
        f("readinessProbe", Shape::Object(&PROBE), HONOURED),
        f("resizePolicy", Objects(&CONTAINER_RESIZE_POLICY), HONOURED),
        f("resources", Shape::Object(&RESOURCE_REQUIREMENTS), HONOURED),
        f("restartPolicy", Text, HONOURED),
        f("restartPolicyRules", Objects(&CONTAINER_RESTART_RULE), HONOURED),
        f("securityContext", Shape::Object(&SECURITY_CONTEXT), HONOURED),
        f("startupProbe", Shape::Object(&PROBE), HONOURED),
        f("stdin", Bool, HONOURED),
        f("stdinOnce", Bool, HONOURED),
        f("terminationMessagePath", Text, HONOURED),
        f("terminationMessagePolicy", Text, HONOURED),
        f("tty", Bool, HONOURED),
        f("volumeDevices", Objects(&VOLUME_DEVICE), HONOURED)
            .note("Of claims that are block devices, and of hostPath volumes of type BlockDevice"),
        f("volumeMounts", Objects(&VOLUME_MOUNT), HONOURED),
        f("workingDir", Text, HONOURED),
    ],
};

/// `EphemeralContainer`.
pub static EPHEMERAL_CONTAINER: Object = Object {
    name: "EphemeralContainer",
    fields: &[
        f("args", Texts, HONOURED),
        f("command", Texts, HONOURED),
        f("env", Objects(&ENV_VAR), HONOURED),
        f("envFrom", Objects(&ENV_FROM_SOURCE), HONOURED),
        f("image", Text, HONOURED),
        f("imagePullPolicy", Text, HONOURED),
        f("lifecycle", Shape::Object(&LIFECYCLE), HONOURED),
        f("livenessProbe", Shape::Object(&PROBE), PROBES),
        f("name", Text, HONOURED),
        f("ports", Objects(&CONTAINER_PORT), HONOURED),
        f("readinessProbe", Shape::Object(&PROBE), PROBES),
        f("resizePolicy", Objects(&CONTAINER_RESIZE_POLICY), HONOURED),
        f("resources", Shape::Object(&RESOURCE_REQUIREMENTS), HONOURED),
        f("restartPolicy", Text, HONOURED),
        f("restartPolicyRules", Objects(&CONTAINER_RESTART_RULE), HONOURED),
        f("securityContext", Shape::Object(&SECURITY_CONTEXT), HONOURED),
        f("startupProbe", Shape::Object(&PROBE), PROBES),
        f("stdin", Bool, HONOURED),
        f("stdinOnce", Bool, HONOURED),
        f("targetContainerName", Text, HONOURED),
        f("terminationMessagePath", Text, HONOURED),
        f("terminationMessagePolicy", Text, HONOURED),
        f("tty", Bool, HONOURED),
        f("volumeDevices", Objects(&VOLUME_DEVICE), HONOURED)
            .note("Of claims that are block devices, and of hostPath volumes of type BlockDevice"),
        f("volumeMounts", Objects(&VOLUME_MOUNT), HONOURED),
        f("workingDir", Text, HONOURED),
    ],
};

/// `EnvVar`.
pub static ENV_VAR: Object = Object {
    name: "EnvVar",
    fields: &[
        f("name", Text, HONOURED),
        f("value", Text, HONOURED),
        f("valueFrom", Shape::Object(&ENV_VAR_SOURCE), HONOURED),
    ],
};

/// `EnvVarSource`.
pub static ENV_VAR_SOURCE: Object = Object {
    name: "EnvVarSource",
    fields: &[
        f("configMapKeyRef", Shape::Object(&CONFIG_MAP_KEY_SELECTOR), HONOURED),
        f("fieldRef", Shape::Object(&OBJECT_FIELD_SELECTOR), HONOURED),
        f("fileKeyRef", Shape::Object(&FILE_KEY_SELECTOR), HONOURED),
        f("resourceFieldRef", Shape::Object(&RESOURCE_FIELD_SELECTOR), HONOURED),
        f("secretKeyRef", Shape::Object(&SECRET_KEY_SELECTOR), HONOURED),
    ],
};

/// `EnvFromSource`.
pub static ENV_FROM_SOURCE: Object = Object {
    name: "EnvFromSource",
    fields: &[
        f("configMapRef", Shape::Object(&CONFIG_MAP_ENV_SOURCE), HONOURED),
        f("prefix", Text, HONOURED),
        f("secretRef", Shape::Object(&SECRET_ENV_SOURCE), HONOURED),
    ],
};

/// `ConfigMapEnvSource`.
pub static CONFIG_MAP_ENV_SOURCE: Object = Object {
    name: "ConfigMapEnvSource",
    fields: &[f("name", Text, HONOURED), f("optional", Bool, HONOURED)],
};

/// `SecretEnvSource`.
pub static SECRET_ENV_SOURCE: Object =
    Object { name: "SecretEnvSource", fields: &[f("name", Text, HONOURED), f("optional", Bool, HONOURED)] };

/// `ConfigMapKeySelector`.
pub static CONFIG_MAP_KEY_SELECTOR: Object = Object {
    name: "ConfigMapKeySelector",
    fields: &[f("key", Text, HONOURED), f("name", Text, HONOURED), f("optional", Bool, HONOURED)],
};

/// `SecretKeySelector`.
pub static SECRET_KEY_SELECTOR: Object = Object {
    name: "SecretKeySelector",
    fields: &[f("key", Text, HONOURED), f("name", Text, HONOURED), f("optional", Bool, HONOURED)],
};

/// `FileKeySelector`.
pub static FILE_KEY_SELECTOR: Object = Object {
    name: "FileKeySelector",
    fields: &[
        f("key", Text, HONOURED),
        f("optional", Bool, HONOURED),
        f("path", Text, HONOURED),
        f("volumeName", Text, HONOURED),
    ],
};

/// `ObjectFieldSelector`.
pub static OBJECT_FIELD_SELECTOR: Object = Object {
    name: "ObjectFieldSelector",
    fields: &[f("apiVersion", Text, HONOURED), f("fieldPath", Text, HONOURED)],
};

/// `ResourceFieldSelector`.
pub static RESOURCE_FIELD_SELECTOR: Object = Object {
    name: "ResourceFieldSelector",
    fields: &[
        f("containerName", Text, HONOURED),
        f("divisor", Quantity, HONOURED),
        f("resource", Text, HONOURED),
    ],
};

/// `ContainerPort`.
pub static CONTAINER_PORT: Object = Object {
    name: "ContainerPort",
    fields: &[
        f("containerPort", Int32, HONOURED),
        f("hostIP", Text, HONOURED),
        f("hostPort", Int32, HONOURED),
        f("name", Text, HONOURED),
        f("protocol", Text, HONOURED),
    ],
};

/// `ContainerResizePolicy`.
pub static CONTAINER_RESIZE_POLICY: Object = Object {
    name: "ContainerResizePolicy",
    fields: &[f("resourceName", Text, HONOURED), f("restartPolicy", Text, HONOURED)],
};

/// `ContainerRestartRule`.
pub static CONTAINER_RESTART_RULE: Object = Object {
    name: "ContainerRestartRule",
    fields: &[
        f("action", Text, HONOURED),
        f("exitCodes", Shape::Object(&CONTAINER_RESTART_RULE_ON_EXIT_CODES), HONOURED),
    ],
};

/// `ContainerRestartRuleOnExitCodes`.
pub static CONTAINER_RESTART_RULE_ON_EXIT_CODES: Object = Object {
    name: "ContainerRestartRuleOnExitCodes",
    fields: &[f("operator", Text, HONOURED), f("values", Int32s, HONOURED)],
};

/// `VolumeDevice`.
pub static VOLUME_DEVICE: Object =
    Object { name: "VolumeDevice", fields: &[f("devicePath", Text, HONOURED), f("name", Text, HONOURED)] };

/// `VolumeMount`.
pub static VOLUME_MOUNT: Object = Object {
    name: "VolumeMount",
    fields: &[
        f("bindMountOptions", Texts, HONOURED),
        f("mountPath", Text, HONOURED),
        f("mountPropagation", Text, HONOURED),
        f("name", Text, HONOURED),
        f("readOnly", Bool, HONOURED),
        f("recursiveReadOnly", Text, HONOURED),
        f("subPath", Text, HONOURED),
        f("subPathExpr", Text, HONOURED),
    ],
};
