use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use serde::Deserialize;
use serde::de::{Deserializer, Visitor};
use serde_json::{Map, Value, json};

use super::*;

/// Answers the question which fields a type would read, by failing with them.
struct Probe;

#[derive(Debug)]
struct Fields(&'static str, &'static [&'static str]);

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Fields {}

impl serde::de::Error for Fields {
    fn custom<T: fmt::Display>(text: T) -> Self {
        panic!("not a struct: {text}")
    }
}

impl<'de> Deserializer<'de> for Probe {
    type Error = Fields;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Fields> {
        panic!("not a struct")
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Fields> {
        Err(Fields(name, fields))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

fn fields_of<'de, T: Deserialize<'de>>() -> (&'static str, &'static [&'static str]) {
    match T::deserialize(Probe) {
        Err(Fields(name, fields)) => (name, fields),
        Ok(_) => panic!("nothing was asked for"),
    }
}

/// Every type below a Pod's metadata and spec, with the fields that its decoder knows.
fn api() -> BTreeMap<&'static str, &'static [&'static str]> {
    macro_rules! types {
        ($($module:ident: $($name:ident),*;)*) => { [$($(fields_of::<$module::$name>()),*),*] };
    }
    types! {
        core: AWSElasticBlockStoreVolumeSource, Affinity, AppArmorProfile, AzureDiskVolumeSource, AzureFileVolumeSource, CSIVolumeSource, Capabilities, CephFSVolumeSource, CinderVolumeSource, ClusterTrustBundleProjection, ConfigMapEnvSource, ConfigMapKeySelector, ConfigMapProjection, ConfigMapVolumeSource, Container, ContainerPort, ContainerResizePolicy, ContainerRestartRule, ContainerRestartRuleOnExitCodes, DownwardAPIProjection, DownwardAPIVolumeFile, DownwardAPIVolumeSource, EmptyDirVolumeSource, EnvFromSource, EnvVar, EnvVarSource, EphemeralContainer, EphemeralVolumeSource, EvictionResponder, ExecAction, FCVolumeSource, FileKeySelector, FlexVolumeSource, FlockerVolumeSource, GCEPersistentDiskVolumeSource, GRPCAction, GitRepoVolumeSource, GlusterfsVolumeSource, HTTPGetAction, HTTPHeader, HostAlias, HostPathVolumeSource, ISCSIVolumeSource, ImageVolumeSource, KeyToPath, Lifecycle, LifecycleHandler, LocalObjectReference, NFSVolumeSource, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectFieldSelector, PersistentVolumeClaimSpec, PersistentVolumeClaimTemplate, PersistentVolumeClaimVolumeSource, PhotonPersistentDiskVolumeSource, Pod, PodAffinity, PodAffinityTerm, PodAntiAffinity, PodCertificateProjection, PodDNSConfig, PodDNSConfigOption, PodOS, PodReadinessGate, PodResourceClaim, PodSchedulingGate, PodSchedulingGroup, PodSecurityContext, PodSpec, PortworxVolumeSource, PreferredSchedulingTerm, Probe, ProjectedVolumeSource, QuobyteVolumeSource, RBDVolumeSource, ResourceClaim, ResourceFieldSelector, ResourceRequirements, SELinuxOptions, ScaleIOVolumeSource, SeccompProfile, SecretEnvSource, SecretKeySelector, SecretProjection, SecretVolumeSource, SecurityContext, ServiceAccountTokenProjection, SleepAction, StorageOSVolumeSource, Sysctl, TCPSocketAction, Toleration, TopologySpreadConstraint, TypedLocalObjectReference, TypedObjectReference, Volume, VolumeDevice, VolumeMount, VolumeProjection, VolumeResourceRequirements, VsphereVirtualDiskVolumeSource, WeightedPodAffinityTerm, WindowsSecurityContextOptions;
        meta: LabelSelector, LabelSelectorRequirement, ManagedFieldsEntry, ObjectMeta, OwnerReference;
    }
    .into()
}

fn objects() -> BTreeMap<&'static str, &'static Object> {
    fn walk(object: &'static Object, all: &mut BTreeMap<&'static str, &'static Object>) {
        if all.insert(object.name, object).is_none() {
            object.fields.iter().filter_map(Field::object).for_each(|inner| walk(inner, all));
        }
    }
    let mut all = BTreeMap::new();
    walk(&POD, &mut all);
    all
}

#[test]
fn the_table_has_exactly_the_fields_of_the_api() {
    let table: BTreeMap<&str, Vec<&str>> =
        objects().into_iter().map(|(name, o)| (name, o.fields.iter().map(|f| f.name).collect())).collect();
    let api: BTreeMap<&str, Vec<&str>> = api()
        .into_iter()
        .map(|(name, fields)| {
            let mut fields = fields.to_vec();
            fields.sort_unstable();
            (name, fields)
        })
        .collect();
    for (name, fields) in &table {
        assert_eq!(Some(fields), api.get(name), "{name}");
    }
    assert_eq!(table.len(), api.len());
}

/// A value for every field, of the type that the table gives it.
fn sample(object: &'static Object) -> Value {
    let mut map = Map::new();
    for field in object.fields {
        let value = match field.shape {
            Shape::Text => json!("x"),
            Shape::Bool => json!(true),
            Shape::Int32 => json!(i32::MAX),
            Shape::Int64 => json!(i64::MAX),
            Shape::Quantity => json!("1Gi"),
            Shape::IntOrText => json!("http"),
            Shape::Time => json!("2024-01-31T12:00:00Z"),
            Shape::Any => continue,
            Shape::Texts => json!(["x"]),
            Shape::Int32s => json!([i32::MAX]),
            Shape::Int64s => json!([i64::MAX]),
            Shape::TextMap => json!({"k": "v"}),
            Shape::QuantityMap => json!({"k": "1"}),
            Shape::Object(inner) => sample(inner),
            Shape::Objects(inner) => json!([sample(inner)]),
        };
        map.insert(field.name.to_owned(), value);
    }
    Value::Object(map)
}

#[test]
fn the_table_has_the_types_of_the_api() {
    let mut written = sample(&POD);
    written["apiVersion"] = json!("v1");
    written["kind"] = json!("Pod");
    let pod: core::Pod = serde_json::from_value(written.clone()).expect("the table's types decode");
    assert_eq!(serde_json::to_value(pod).expect("json"), written, "something was dropped or changed");
}

#[test]
fn reasons_read_as_part_of_a_sentence() {
    for object in objects().into_values() {
        for field in object.fields {
            let supports =
                std::iter::once(&field.support).chain(field.except.iter().map(|(_, support)| support));
            for support in supports {
                if let Partly(why) | Warned(why) | Refused(why) = support {
                    assert!(!why.ends_with('.') && why.len() > 10, "{}.{}: {why}", object.name, field.name);
                }
            }
        }
    }
}

#[test]
fn resources_are_known_by_name() {
    assert_eq!(resource_support("cpu"), HONOURED);
    assert!(matches!(resource_support("hugepages-2Mi"), Honoured));
    assert!(matches!(resource_support("nvidia.com/gpu"), Warned(_)));
    assert!(matches!(resource_support("ephemeral-storage"), Partly(_)));
}
