//! Volumes that need nothing but the node, and claims.

use super::Shape::{Bool, Int32, Int64, Objects, Quantity, QuantityMap, Text, TextMap, Texts};
use super::container::{OBJECT_FIELD_SELECTOR, RESOURCE_FIELD_SELECTOR};
use super::meta::{LABEL_SELECTOR, OBJECT_META};
use super::storage::{
    AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE, AZURE_DISK_VOLUME_SOURCE, AZURE_FILE_VOLUME_SOURCE,
    CEPH_FS_VOLUME_SOURCE, CINDER_VOLUME_SOURCE, CSI_VOLUME_SOURCE, FC_VOLUME_SOURCE, FLEX_VOLUME_SOURCE,
    FLOCKER_VOLUME_SOURCE, GCE_PERSISTENT_DISK_VOLUME_SOURCE, GIT_REPO_VOLUME_SOURCE,
    GLUSTERFS_VOLUME_SOURCE, ISCSI_VOLUME_SOURCE, NFS_VOLUME_SOURCE, PHOTON_PERSISTENT_DISK_VOLUME_SOURCE,
    PORTWORX_VOLUME_SOURCE, QUOBYTE_VOLUME_SOURCE, RBD_VOLUME_SOURCE, SCALE_IO_VOLUME_SOURCE,
    STORAGE_OS_VOLUME_SOURCE, VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE,
};
use super::{HONOURED, Lit, Object, Shape, Support, f, partly, refused, warned};

/// For volumes that live in a storage system.
const DRIVER: Support =
    refused("volumes of storage systems are not mounted; mount it on the host and use hostPath");

/// `Volume`.
pub static VOLUME: Object = Object {
    name: "Volume",
    fields: &[
        f("awsElasticBlockStore", Shape::Object(&AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE), DRIVER),
        f("azureDisk", Shape::Object(&AZURE_DISK_VOLUME_SOURCE), DRIVER),
        f("azureFile", Shape::Object(&AZURE_FILE_VOLUME_SOURCE), DRIVER),
        f("cephfs", Shape::Object(&CEPH_FS_VOLUME_SOURCE), DRIVER),
        f("cinder", Shape::Object(&CINDER_VOLUME_SOURCE), DRIVER),
        f("configMap", Shape::Object(&CONFIG_MAP_VOLUME_SOURCE), HONOURED),
        f("csi", Shape::Object(&CSI_VOLUME_SOURCE), DRIVER),
        f("downwardAPI", Shape::Object(&DOWNWARD_API_VOLUME_SOURCE), HONOURED),
        f("emptyDir", Shape::Object(&EMPTY_DIR_VOLUME_SOURCE), HONOURED),
        f("ephemeral", Shape::Object(&EPHEMERAL_VOLUME_SOURCE), HONOURED)
            .note("A directory on the node that goes with the pod"),
        f("fc", Shape::Object(&FC_VOLUME_SOURCE), DRIVER),
        f("flexVolume", Shape::Object(&FLEX_VOLUME_SOURCE), DRIVER),
        f("flocker", Shape::Object(&FLOCKER_VOLUME_SOURCE), DRIVER),
        f("gcePersistentDisk", Shape::Object(&GCE_PERSISTENT_DISK_VOLUME_SOURCE), DRIVER),
        f(
            "gitRepo",
            Shape::Object(&GIT_REPO_VOLUME_SOURCE),
            refused("this kind of volume is no longer run by kubelets either; clone in an init container"),
        ),
        f("glusterfs", Shape::Object(&GLUSTERFS_VOLUME_SOURCE), DRIVER),
        f("hostPath", Shape::Object(&HOST_PATH_VOLUME_SOURCE), HONOURED)
            .note("A path without any slash is the name of a claim, as with podman"),
        f("image", Shape::Object(&IMAGE_VOLUME_SOURCE), HONOURED)
            .note("Read-only, and programs in it cannot be executed"),
        f("iscsi", Shape::Object(&ISCSI_VOLUME_SOURCE), DRIVER),
        f("name", Text, HONOURED),
        f("nfs", Shape::Object(&NFS_VOLUME_SOURCE), HONOURED)
            .note("By the host's `mount.nfs` (package nfs-common or nfs-utils), as a kubelet does"),
        f("persistentVolumeClaim", Shape::Object(&PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE), HONOURED).note(
            "The directory `/var/lib/podling/claims/NAMESPACE/NAME`, made when missing, kept when pods go; documents of claims may lie among the manifests and need not",
        ),
        f("photonPersistentDisk", Shape::Object(&PHOTON_PERSISTENT_DISK_VOLUME_SOURCE), DRIVER),
        f("portworxVolume", Shape::Object(&PORTWORX_VOLUME_SOURCE), DRIVER),
        f("projected", Shape::Object(&PROJECTED_VOLUME_SOURCE), HONOURED),
        f("quobyte", Shape::Object(&QUOBYTE_VOLUME_SOURCE), DRIVER),
        f("rbd", Shape::Object(&RBD_VOLUME_SOURCE), DRIVER),
        f("scaleIO", Shape::Object(&SCALE_IO_VOLUME_SOURCE), DRIVER),
        f("secret", Shape::Object(&SECRET_VOLUME_SOURCE), HONOURED),
        f("storageos", Shape::Object(&STORAGE_OS_VOLUME_SOURCE), DRIVER),
        f("vsphereVolume", Shape::Object(&VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE), DRIVER),
    ],
};

/// `EmptyDirVolumeSource`.
pub static EMPTY_DIR_VOLUME_SOURCE: Object = Object {
    name: "EmptyDirVolumeSource",
    fields: &[
        f("medium", Text, HONOURED),
        f("mode", Int32, partly("it holds here; kubelets older than 1.37 do not know it and use 0777")),
        f("sizeLimit", Quantity, HONOURED)
            .note("A hard limit with medium `Memory` and `HugePages`; on disk it is not enforced, as for static pods under a kubelet, which is warned about"),
    ],
};

/// `HostPathVolumeSource`.
pub static HOST_PATH_VOLUME_SOURCE: Object =
    Object { name: "HostPathVolumeSource", fields: &[f("path", Text, HONOURED), f("type", Text, HONOURED)] };

/// `ConfigMapVolumeSource`.
pub static CONFIG_MAP_VOLUME_SOURCE: Object = Object {
    name: "ConfigMapVolumeSource",
    fields: &[
        f("defaultMode", Int32, HONOURED),
        f("defaultUser", Int64, HONOURED),
        f("items", Objects(&KEY_TO_PATH), HONOURED),
        f("name", Text, HONOURED),
        f("optional", Bool, HONOURED),
    ],
};

/// `SecretVolumeSource`.
pub static SECRET_VOLUME_SOURCE: Object = Object {
    name: "SecretVolumeSource",
    fields: &[
        f("defaultMode", Int32, HONOURED),
        f("defaultUser", Int64, HONOURED),
        f("items", Objects(&KEY_TO_PATH), HONOURED),
        f("optional", Bool, HONOURED),
        f("secretName", Text, HONOURED),
    ],
};

/// `KeyToPath`.
pub static KEY_TO_PATH: Object = Object {
    name: "KeyToPath",
    fields: &[
        f("key", Text, HONOURED),
        f("mode", Int32, HONOURED),
        f("path", Text, HONOURED),
        f("user", Int64, HONOURED),
    ],
};

/// `DownwardAPIVolumeSource`.
pub static DOWNWARD_API_VOLUME_SOURCE: Object = Object {
    name: "DownwardAPIVolumeSource",
    fields: &[
        f("defaultMode", Int32, HONOURED),
        f("defaultUser", Int64, HONOURED),
        f("items", Objects(&DOWNWARD_API_VOLUME_FILE), HONOURED),
    ],
};

/// `DownwardAPIVolumeFile`.
pub static DOWNWARD_API_VOLUME_FILE: Object = Object {
    name: "DownwardAPIVolumeFile",
    fields: &[
        f("fieldRef", Shape::Object(&OBJECT_FIELD_SELECTOR), HONOURED),
        f("mode", Int32, HONOURED),
        f("path", Text, HONOURED),
        f("resourceFieldRef", Shape::Object(&RESOURCE_FIELD_SELECTOR), HONOURED),
        f("user", Int64, HONOURED),
    ],
};

/// `ProjectedVolumeSource`.
pub static PROJECTED_VOLUME_SOURCE: Object = Object {
    name: "ProjectedVolumeSource",
    fields: &[
        f("defaultMode", Int32, HONOURED),
        f("defaultUser", Int64, HONOURED),
        f("sources", Objects(&VOLUME_PROJECTION), HONOURED),
    ],
};

/// `VolumeProjection`.
pub static VOLUME_PROJECTION: Object = Object {
    name: "VolumeProjection",
    fields: &[
        f(
            "clusterTrustBundle",
            Shape::Object(&CLUSTER_TRUST_BUNDLE_PROJECTION),
            refused("trust bundles are kept by an API server; put the certificates into a ConfigMap"),
        )
        .but(&[(Lit::Optional, warned("trust bundles are kept by an API server"))]),
        f("configMap", Shape::Object(&CONFIG_MAP_PROJECTION), HONOURED),
        f("downwardAPI", Shape::Object(&DOWNWARD_API_PROJECTION), HONOURED),
        f(
            "podCertificate",
            Shape::Object(&POD_CERTIFICATE_PROJECTION),
            refused("certificates of pods are issued by an API server; put one into a Secret"),
        ),
        f("secret", Shape::Object(&SECRET_PROJECTION), HONOURED),
        f(
            "serviceAccountToken",
            Shape::Object(&SERVICE_ACCOUNT_TOKEN_PROJECTION),
            refused(
                "tokens are issued by an API server; leave out the volume with its mounts (kubectl shows one that no \
                manifest had: kube-api-access), or put a token into a Secret",
            ),
        ),
    ],
};

/// `ConfigMapProjection`.
pub static CONFIG_MAP_PROJECTION: Object = Object {
    name: "ConfigMapProjection",
    fields: &[
        f("items", Objects(&KEY_TO_PATH), HONOURED),
        f("name", Text, HONOURED),
        f("optional", Bool, HONOURED),
    ],
};

/// `SecretProjection`.
pub static SECRET_PROJECTION: Object = Object {
    name: "SecretProjection",
    fields: &[
        f("items", Objects(&KEY_TO_PATH), HONOURED),
        f("name", Text, HONOURED),
        f("optional", Bool, HONOURED),
    ],
};

/// `DownwardAPIProjection`.
pub static DOWNWARD_API_PROJECTION: Object = Object {
    name: "DownwardAPIProjection",
    fields: &[f("items", Objects(&DOWNWARD_API_VOLUME_FILE), HONOURED)],
};

/// `ServiceAccountTokenProjection`.
pub static SERVICE_ACCOUNT_TOKEN_PROJECTION: Object = Object {
    name: "ServiceAccountTokenProjection",
    fields: &[
        f("audience", Text, HONOURED),
        f("expirationSeconds", Int64, HONOURED),
        f("path", Text, HONOURED),
        f("user", Int64, HONOURED),
    ],
};

/// `ClusterTrustBundleProjection`.
pub static CLUSTER_TRUST_BUNDLE_PROJECTION: Object = Object {
    name: "ClusterTrustBundleProjection",
    fields: &[
        f("labelSelector", Shape::Object(&LABEL_SELECTOR), HONOURED),
        f("name", Text, HONOURED),
        f("optional", Bool, HONOURED),
        f("path", Text, HONOURED),
        f("signerName", Text, HONOURED),
        f("user", Int64, HONOURED),
    ],
};

/// `PodCertificateProjection`.
pub static POD_CERTIFICATE_PROJECTION: Object = Object {
    name: "PodCertificateProjection",
    fields: &[
        f("certificateChainPath", Text, HONOURED),
        f("credentialBundlePath", Text, HONOURED),
        f("keyPath", Text, HONOURED),
        f("keyType", Text, HONOURED),
        f("maxExpirationSeconds", Int32, HONOURED),
        f("signerName", Text, HONOURED),
        f("user", Int64, HONOURED),
        f("userAnnotations", TextMap, HONOURED),
    ],
};

/// `ImageVolumeSource`.
pub static IMAGE_VOLUME_SOURCE: Object = Object {
    name: "ImageVolumeSource",
    fields: &[f("pullPolicy", Text, HONOURED), f("reference", Text, HONOURED)],
};

/// `PersistentVolumeClaimVolumeSource`.
pub static PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE: Object = Object {
    name: "PersistentVolumeClaimVolumeSource",
    fields: &[f("claimName", Text, HONOURED), f("readOnly", Bool, HONOURED)],
};

/// `EphemeralVolumeSource`.
pub static EPHEMERAL_VOLUME_SOURCE: Object = Object {
    name: "EphemeralVolumeSource",
    fields: &[f("volumeClaimTemplate", Shape::Object(&PERSISTENT_VOLUME_CLAIM_TEMPLATE), HONOURED)],
};

/// `PersistentVolumeClaimTemplate`.
pub static PERSISTENT_VOLUME_CLAIM_TEMPLATE: Object = Object {
    name: "PersistentVolumeClaimTemplate",
    fields: &[
        f("metadata", Shape::Object(&OBJECT_META), HONOURED),
        f("spec", Shape::Object(&PERSISTENT_VOLUME_CLAIM_SPEC), HONOURED),
    ],
};

/// `PersistentVolumeClaimSpec`.
pub static PERSISTENT_VOLUME_CLAIM_SPEC: Object = Object {
    name: "PersistentVolumeClaimSpec",
    fields: &[
        f("accessModes", Texts, HONOURED),
        f("dataSource", Shape::Object(&TYPED_LOCAL_OBJECT_REFERENCE), CONTENT),
        f("dataSourceRef", Shape::Object(&TYPED_OBJECT_REFERENCE), CONTENT),
        f("resources", Shape::Object(&VOLUME_RESOURCE_REQUIREMENTS), warned("its size is not limited")),
        f("selector", Shape::Object(&LABEL_SELECTOR), warned(ONE_PLACE)),
        f("storageClassName", Text, warned(ONE_PLACE)).but(&[(Lit::Text(""), HONOURED)]),
        f("volumeAttributesClassName", Text, warned(ONE_PLACE)),
        f("volumeMode", Text, HONOURED)
            .but(&[(Lit::Text("Block"), refused("only persistentVolumeClaims can be block devices here"))]),
        f("volumeName", Text, warned(ONE_PLACE)),
    ],
};

/// For what chooses among kinds of storage.
const ONE_PLACE: &str = "it is a directory on the node, whatever the class";
/// For what a volume would be filled with.
const CONTENT: Support = refused("nothing fills the volume; fill it in an init container");

/// `TypedLocalObjectReference`.
pub static TYPED_LOCAL_OBJECT_REFERENCE: Object = Object {
    name: "TypedLocalObjectReference",
    fields: &[f("apiGroup", Text, HONOURED), f("kind", Text, HONOURED), f("name", Text, HONOURED)],
};

/// `TypedObjectReference`.
pub static TYPED_OBJECT_REFERENCE: Object = Object {
    name: "TypedObjectReference",
    fields: &[
        f("apiGroup", Text, HONOURED),
        f("kind", Text, HONOURED),
        f("name", Text, HONOURED),
        f("namespace", Text, HONOURED),
    ],
};

/// `VolumeResourceRequirements`.
pub static VOLUME_RESOURCE_REQUIREMENTS: Object = Object {
    name: "VolumeResourceRequirements",
    fields: &[f("limits", QuantityMap, HONOURED), f("requests", QuantityMap, HONOURED)],
};
