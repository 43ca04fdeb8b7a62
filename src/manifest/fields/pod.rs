//! The pod itself and the parts of its spec that belong to no container or volume.

use super::Shape::{Any, Bool, Int32, Int64, Objects, QuantityMap, Text, TextMap, Texts};
use super::cluster::{AFFINITY, TOLERATION, TOPOLOGY_SPREAD_CONSTRAINT};
use super::container::{CONTAINER, EPHEMERAL_CONTAINER};
use super::meta::OBJECT_META;
use super::resources::RESOURCE_REQUIREMENTS;
use super::security::POD_SECURITY_CONTEXT;
use super::volume::VOLUME;
use super::{HONOURED, Lit, Object, Shape, Support, f, partly, refused, warned};

/// For what decides on which node a pod runs.
const CLUSTER: Support = warned("a cluster chooses nodes for pods; this pod runs on this node in any case");
/// For what orders pods.
const PRIORITY: Support = partly(
    "it orders starts, and who comes first of those that wait for the node; nothing that runs is put out for it. Classes \
     are the system's and those under priorityClasses in the settings",
);
/// For what a cluster knows of its nodes.
const LABELS: Support = partly(
    "os and hostname are checked against this node, arch and other labels only where the settings give nodeLabels; a pod \
     that does not match waits",
);
/// For the identity of a pod towards an API server.
const ACCOUNT: Support = warned("there is no API server, so the pod gets no account and no token");

/// `Pod`.
pub static POD: Object = Object {
    name: "Pod",
    fields: &[
        f("apiVersion", Text, HONOURED),
        f("kind", Text, HONOURED),
        f("metadata", Shape::Object(&OBJECT_META), HONOURED),
        f("spec", Shape::Object(&POD_SPEC), HONOURED),
        f(
            "status",
            Any,
            warned("podling reports the status itself; what the manifest says of it is ignored"),
        ),
    ],
};

/// `PodSpec`.
pub static POD_SPEC: Object = Object {
    name: "PodSpec",
    fields: &[
        f("activeDeadlineSeconds", Int64, HONOURED),
        f(
            "affinity",
            Shape::Object(&AFFINITY),
            partly("required node affinity is checked against this node's labels; what prefers, and what looks at other pods, has no effect on one node"),
        ).but(&[(Lit::Empty, HONOURED)]),
        f(
            "automountServiceAccountToken",
            Bool,
            warned("there is no API server to issue a token, so none is mounted"),
        )
        .but(&[(Lit::Bool(false), HONOURED)]),
        f("containers", Objects(&CONTAINER), HONOURED),
        f("dnsConfig", Shape::Object(&DNS_CONFIG), HONOURED),
        f("dnsPolicy", Text, HONOURED)
            .note("`ClusterFirst` without a cluster DNS in the settings is `Default`"),
        f("enableServiceLinks", Bool, HONOURED)
            .note("There are no Services, so neither value adds variables"),
        f(
            "ephemeralContainers",
            Objects(&EPHEMERAL_CONTAINER),
            refused("these are only added to a running pod, through an API server"),
        ),
        f(
            "evictionResponders",
            Objects(&EVICTION_RESPONDER),
            warned("nothing evicts pods through an API here"),
        ),
        f("hostAliases", Objects(&HOST_ALIAS), HONOURED),
        f("hostIPC", Bool, HONOURED),
        f("hostNetwork", Bool, HONOURED),
        f("hostPID", Bool, HONOURED),
        f("hostUsers", Bool, HONOURED)
            .note("`false` takes Linux 5.19 and file systems that can map ids; a pod that cannot have it waits"),
        f("hostname", Text, HONOURED),
        f("hostnameOverride", Text, HONOURED),
        f("imagePullSecrets", Objects(&LOCAL_OBJECT_REFERENCE), HONOURED)
            .note("Secrets of the pod's namespace from manifest files, of both docker types"),
        f("initContainers", Objects(&CONTAINER), HONOURED),
        f("nodeName", Text, warned("pods are not assigned to nodes here; it runs on this node"))
            .but(&[(Lit::Text(""), HONOURED)])
            .note("Not warned about when it is this node's name"),
        f("nodeSelector", TextMap, LABELS),
        f("os", Shape::Object(&POD_OS), HONOURED),
        f("overhead", QuantityMap, HONOURED).note("Added to the requests and limits of the pod's cgroup"),
        f("preemptionPolicy", Text, warned("pods here are never put out for others")),
        f("priority", Int32, PRIORITY),
        f("priorityClassName", Text, PRIORITY).but(&[(Lit::Text(""), HONOURED)]),
        f(
            "readinessGates",
            Objects(&POD_READINESS_GATE),
            partly(
                "nothing sets these conditions without an API server, so the pod runs and never becomes Ready, as on a kubelet alone; leave them out, or say it with a readinessProbe",
            ),
        ),
        f(
            "resourceClaims",
            Objects(&POD_RESOURCE_CLAIM),
            refused("devices are claimed through an API server; the containers would miss theirs"),
        ),
        f("resources", Shape::Object(&RESOURCE_REQUIREMENTS), HONOURED),
        f("restartPolicy", Text, HONOURED),
        f(
            "runtimeClassName",
            Text,
            warned("`runtimeClasses` in the settings of this node does not name this class"),
        )
        .but(&[(Lit::Text(""), HONOURED)])
        .note(
            "Honoured, and not warned about, for the classes that the settings name. Where they name none, the pod \
             runs in the default runtime; where they name others, it waits",
        ),
        f("schedulerName", Text, CLUSTER)
            .but(&[(Lit::Text("default-scheduler"), HONOURED), (Lit::Text(""), HONOURED)]),
        f(
            "schedulingGates",
            Objects(&POD_SCHEDULING_GATE),
            refused("nothing removes scheduling gates here, so the pod would never start"),
        ),
        f("schedulingGroup", Shape::Object(&POD_SCHEDULING_GROUP), CLUSTER),
        f("securityContext", Shape::Object(&POD_SECURITY_CONTEXT), HONOURED),
        f("serviceAccount", Text, ACCOUNT).but(&[(Lit::Text(""), HONOURED)]),
        f("serviceAccountName", Text, ACCOUNT).but(&[(Lit::Text(""), HONOURED)]),
        f("setHostnameAsFQDN", Bool, HONOURED),
        f("shareProcessNamespace", Bool, HONOURED),
        f("subdomain", Text, HONOURED).note("Its domain ends with `clusterDomain` of the settings, if set"),
        f("terminationGracePeriodSeconds", Int64, HONOURED),
        f("tolerations", Objects(&TOLERATION), CLUSTER),
        f("topologySpreadConstraints", Objects(&TOPOLOGY_SPREAD_CONSTRAINT), CLUSTER),
        f("volumes", Objects(&VOLUME), HONOURED),
    ],
};

/// `PodDNSConfig`.
pub static DNS_CONFIG: Object = Object {
    name: "PodDNSConfig",
    fields: &[
        f("nameservers", Texts, HONOURED),
        f("options", Objects(&DNS_CONFIG_OPTION), HONOURED),
        f("searches", Texts, HONOURED),
    ],
};

/// `PodDNSConfigOption`.
pub static DNS_CONFIG_OPTION: Object =
    Object { name: "PodDNSConfigOption", fields: &[f("name", Text, HONOURED), f("value", Text, HONOURED)] };

/// `EvictionResponder`.
pub static EVICTION_RESPONDER: Object = Object {
    name: "EvictionResponder",
    fields: &[f("name", Text, HONOURED), f("priority", Int32, HONOURED)],
};

/// `HostAlias`.
pub static HOST_ALIAS: Object =
    Object { name: "HostAlias", fields: &[f("hostnames", Texts, HONOURED), f("ip", Text, HONOURED)] };

/// `LocalObjectReference`.
pub static LOCAL_OBJECT_REFERENCE: Object =
    Object { name: "LocalObjectReference", fields: &[f("name", Text, HONOURED)] };

/// `PodOS`.
pub static POD_OS: Object = Object {
    name: "PodOS",
    fields: &[f("name", Text, HONOURED)
        .but(&[(Lit::Text("windows"), refused("this node runs Linux containers only"))])],
};

/// `PodReadinessGate`.
pub static POD_READINESS_GATE: Object =
    Object { name: "PodReadinessGate", fields: &[f("conditionType", Text, HONOURED)] };

/// `PodResourceClaim`.
pub static POD_RESOURCE_CLAIM: Object = Object {
    name: "PodResourceClaim",
    fields: &[
        f("name", Text, HONOURED),
        f("resourceClaimName", Text, HONOURED),
        f("resourceClaimTemplateName", Text, HONOURED),
    ],
};

/// `PodSchedulingGate`.
pub static POD_SCHEDULING_GATE: Object =
    Object { name: "PodSchedulingGate", fields: &[f("name", Text, HONOURED)] };

/// `PodSchedulingGroup`.
pub static POD_SCHEDULING_GROUP: Object =
    Object { name: "PodSchedulingGroup", fields: &[f("podGroupName", Text, HONOURED)] };
