//! Volumes that live in a storage system.

use super::Shape::{Bool, Int32, Text, TextMap, Texts};
use super::pod::LOCAL_OBJECT_REFERENCE;
use super::{HONOURED, Object, Shape, f};

/// `AWSElasticBlockStoreVolumeSource`.
pub static AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE: Object = Object {
    name: "AWSElasticBlockStoreVolumeSource",
    fields: &[
        f("fsType", Text, HONOURED),
        f("partition", Int32, HONOURED),
        f("readOnly", Bool, HONOURED),
        f("volumeID", Text, HONOURED),
    ],
};

/// `AzureDiskVolumeSource`.
pub static AZURE_DISK_VOLUME_SOURCE: Object = Object {
    name: "AzureDiskVolumeSource",
    fields: &[
        f("cachingMode", Text, HONOURED),
        f("diskName", Text, HONOURED),
        f("diskURI", Text, HONOURED),
        f("fsType", Text, HONOURED),
        f("kind", Text, HONOURED),
        f("readOnly", Bool, HONOURED),
    ],
};

/// `AzureFileVolumeSource`.
pub static AZURE_FILE_VOLUME_SOURCE: Object = Object {
    name: "AzureFileVolumeSource",
    fields: &[f("readOnly", Bool, HONOURED), f("secretName", Text, HONOURED), f("shareName", Text, HONOURED)],
};

/// `CephFSVolumeSource`.
pub static CEPH_FS_VOLUME_SOURCE: Object = Object {
    name: "CephFSVolumeSource",
    fields: &[
        f("monitors", Texts, HONOURED),
        f("path", Text, HONOURED),
        f("readOnly", Bool, HONOURED),
        f("secretFile", Text, HONOURED),
        f("secretRef", Shape::Object(&LOCAL_OBJECT_REFERENCE), HONOURED),
        f("user", Text, HONOURED),
    ],
};

/// `CinderVolumeSource`.
pub static CINDER_VOLUME_SOURCE: Object = Object {
    name: "CinderVolumeSource",
    fields: &[
        f("fsType", Text, HONOURED),
        f("readOnly", Bool, HONOURED),
        f("secretRef", Shape::Object(&LOCAL_OBJECT_REFERENCE), HONOURED),
        f("volumeID", Text, HONOURED),
    ],
};

/// `CSIVolumeSource`.
pub static CSI_VOLUME_SOURCE: Object = Object {
    name: "CSIVolumeSource",
    fields: &[
        f("driver", Text, HONOURED),
        f("fsType", Text, HONOURED),
        f("nodePublishSecretRef", Shape::Object(&LOCAL_OBJECT_REFERENCE), HONOURED),
        f("readOnly", Bool, HONOURED),
        f("volumeAttributes", TextMap, HONOURED),
    ],
};

/// `FCVolumeSource`.
pub static FC_VOLUME_SOURCE: Object = Object {
    name: "FCVolumeSource",
    fields: &[
        f("fsType", Text, HONOURED),
        f("lun", Int32, HONOURED),
        f("readOnly", Bool, HONOURED),
        f("targetWWNs", Texts, HONOURED),
        f("wwids", Texts, HONOURED),
    ],
};

/// `FlexVolumeSource`.
pub static FLEX_VOLUME_SOURCE: Object = Object {
    name: "FlexVolumeSource",
    fields: &[
        f("driver", Text, HONOURED),
        f("fsType", Text, HONOURED),
        f("options", TextMap, HONOURED),
        f("readOnly", Bool, HONOURED),
        f("secretRef", Shape::Object(&LOCAL_OBJECT_REFERENCE), HONOURED),
    ],
};

/// `FlockerVolumeSource`.
pub static FLOCKER_VOLUME_SOURCE: Object = Object {
    name: "FlockerVolumeSource",
    fields: &[f("datasetName", Text, HONOURED), f("datasetUUID", Text, HONOURED)],
};

/// `GCEPersistentDiskVolumeSource`.
pub static GCE_PERSISTENT_DISK_VOLUME_SOURCE: Object = Object {
    name: "GCEPersistentDiskVolumeSource",
    fields: &[
        f("fsType", Text, HONOURED),
        f("partition", Int32, HONOURED),
        f("pdName", Text, HONOURED),
        f("readOnly", Bool, HONOURED),
    ],
};

/// `GitRepoVolumeSource`.
pub static GIT_REPO_VOLUME_SOURCE: Object = Object {
    name: "GitRepoVolumeSource",
    fields: &[f("directory", Text, HONOURED), f("repository", Text, HONOURED), f("revision", Text, HONOURED)],
};

/// `GlusterfsVolumeSource`.
pub static GLUSTERFS_VOLUME_SOURCE: Object = Object {
    name: "GlusterfsVolumeSource",
    fields: &[f("endpoints", Text, HONOURED), f("path", Text, HONOURED), f("readOnly", Bool, HONOURED)],
};

/// `ISCSIVolumeSource`.
pub static ISCSI_VOLUME_SOURCE: Object = Object {
    name: "ISCSIVolumeSource",
    fields: &[
        f("chapAuthDiscovery", Bool, HONOURED),
        f("chapAuthSession", Bool, HONOURED),
        f("fsType", Text, HONOURED),
        f("initiatorName", Text, HONOURED),
        f("iqn", Text, HONOURED),
        f("iscsiInterface", Text, HONOURED),
        f("lun", Int32, HONOURED),
        f("portals", Texts, HONOURED),
        f("readOnly", Bool, HONOURED),
        f("secretRef", Shape::Object(&LOCAL_OBJECT_REFERENCE), HONOURED),
        f("targetPortal", Text, HONOURED),
    ],
};

/// `NFSVolumeSource`.
pub static NFS_VOLUME_SOURCE: Object = Object {
    name: "NFSVolumeSource",
    fields: &[f("path", Text, HONOURED), f("readOnly", Bool, HONOURED), f("server", Text, HONOURED)],
};

/// `PhotonPersistentDiskVolumeSource`.
pub static PHOTON_PERSISTENT_DISK_VOLUME_SOURCE: Object = Object {
    name: "PhotonPersistentDiskVolumeSource",
    fields: &[f("fsType", Text, HONOURED), f("pdID", Text, HONOURED)],
};

/// `PortworxVolumeSource`.
pub static PORTWORX_VOLUME_SOURCE: Object = Object {
    name: "PortworxVolumeSource",
    fields: &[f("fsType", Text, HONOURED), f("readOnly", Bool, HONOURED), f("volumeID", Text, HONOURED)],
};

/// `QuobyteVolumeSource`.
pub static QUOBYTE_VOLUME_SOURCE: Object = Object {
    name: "QuobyteVolumeSource",
    fields: &[
        f("group", Text, HONOURED),
        f("readOnly", Bool, HONOURED),
        f("registry", Text, HONOURED),
        f("tenant", Text, HONOURED),
        f("user", Text, HONOURED),
        f("volume", Text, HONOURED),
    ],
};

/// `RBDVolumeSource`.
pub static RBD_VOLUME_SOURCE: Object = Object {
    name: "RBDVolumeSource",
    fields: &[
        f("fsType", Text, HONOURED),
        f("image", Text, HONOURED),
        f("keyring", Text, HONOURED),
        f("monitors", Texts, HONOURED),
        f("pool", Text, HONOURED),
        f("readOnly", Bool, HONOURED),
        f("secretRef", Shape::Object(&LOCAL_OBJECT_REFERENCE), HONOURED),
        f("user", Text, HONOURED),
    ],
};

/// `ScaleIOVolumeSource`.
pub static SCALE_IO_VOLUME_SOURCE: Object = Object {
    name: "ScaleIOVolumeSource",
    fields: &[
        f("fsType", Text, HONOURED),
        f("gateway", Text, HONOURED),
        f("protectionDomain", Text, HONOURED),
        f("readOnly", Bool, HONOURED),
        f("secretRef", Shape::Object(&LOCAL_OBJECT_REFERENCE), HONOURED),
        f("sslEnabled", Bool, HONOURED),
        f("storageMode", Text, HONOURED),
        f("storagePool", Text, HONOURED),
        f("system", Text, HONOURED),
        f("volumeName", Text, HONOURED),
    ],
};

/// `StorageOSVolumeSource`.
pub static STORAGE_OS_VOLUME_SOURCE: Object = Object {
    name: "StorageOSVolumeSource",
    fields: &[
        f("fsType", Text, HONOURED),
        f("readOnly", Bool, HONOURED),
        f("secretRef", Shape::Object(&LOCAL_OBJECT_REFERENCE), HONOURED),
        f("volumeName", Text, HONOURED),
        f("volumeNamespace", Text, HONOURED),
    ],
};

/// `VsphereVirtualDiskVolumeSource`.
pub static VSPHERE_VIRTUAL_DISK_VOLUME_SOURCE: Object = Object {
    name: "VsphereVirtualDiskVolumeSource",
    fields: &[
        f("fsType", Text, HONOURED),
        f("storagePolicyID", Text, HONOURED),
        f("storagePolicyName", Text, HONOURED),
        f("volumePath", Text, HONOURED),
    ],
};
