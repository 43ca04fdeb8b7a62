//! ConfigMaps and Secrets: what their documents say, decoded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Serialize};

use super::node::{Kind, Node, quote};
use super::objects::{Code, Origin};
use super::positions::{Findings, Path};
use super::validate;

/// As the API decodes: padded, and without a look at the bits that padding leaves over.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// Most bytes that the values of an object may have together, as the API has it.
const MAX_DATA: usize = 1 << 20;

/// The kinds of object that hold data for pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ObjectKind {
    /// `ConfigMap`.
    ConfigMap,
    /// `Secret`.
    Secret,
}

impl ObjectKind {
    /// The kind as a manifest writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }

    /// The resource's name as the API's messages write it.
    pub const fn resource(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        }
    }

    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::ConfigMap, Self::Secret].into_iter().find(|kind| kind.as_str() == name)
    }
}

/// Identity of a ConfigMap or Secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectKey {
    /// Which of the two.
    pub kind: ObjectKind,
    /// Kubernetes namespace, `default` where the document has none. Pods see objects of their own only.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl ObjectKey {
    /// A key from its parts.
    pub fn new(kind: ObjectKind, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.as_str(), self.namespace, self.name)
    }
}

/// A ConfigMap or Secret that was read and found valid.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DataObject {
    /// Kind, namespace and name.
    pub key: ObjectKey,
    /// What it holds: `data`, `stringData` over it, and `binaryData`, decoded.
    #[serde(with = "in_base64")]
    pub data: BTreeMap<String, Vec<u8>>,
    /// Which of them are from a ConfigMap's `binaryData`: files, never variables.
    #[serde(default)]
    pub binary: BTreeSet<String>,
    /// `type` of a Secret, `Opaque` where it says none; none for ConfigMaps.
    pub secret_type: Option<String>,
    /// Its data may not change.
    pub immutable: bool,
    /// Where it stands.
    pub origin: Origin,
}

impl DataObject {
    /// What variables may take from it, in order of key.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let plain = self.data.iter().filter(|(key, _)| !self.binary.contains(*key));
        plain.map(|(key, value)| (key.as_str(), value.as_slice()))
    }
}

/// Values never reach a log, whatever is printed.
impl fmt::Debug for DataObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: BTreeMap<&str, usize> = self.data.iter().map(|(k, v)| (k.as_str(), v.len())).collect();
        f.debug_struct("DataObject")
            .field("key", &self.key)
            .field("sizes", &sizes)
            .field("secret_type", &self.secret_type)
            .field("immutable", &self.immutable)
            .field("origin", &self.origin)
            .finish()
    }
}

/// Decodes a ConfigMap or Secret. What is wrong is a finding, and nothing comes of it then.
pub fn object(kind: ObjectKind, findings: &mut Findings<'_>) -> Option<DataObject> {
    let root = findings.root();
    validate::data_object(kind, findings);
    let secret = kind == ObjectKind::Secret;
    let mut data = BTreeMap::new();
    let mut binary = BTreeSet::new();
    // Plain text last: it stands over encoded text of the same name.
    let fields: [(&str, bool); 2] = match kind {
        ObjectKind::ConfigMap => [("binaryData", true), ("data", false)],
        ObjectKind::Secret => [("data", true), ("stringData", false)],
    };
    for (field, encoded) in fields {
        if let Some(map) = root.get(field) {
            values(findings, map, &Path::root().field(field), encoded, secret, &mut data);
            if field == "binaryData" {
                binary.extend(data.keys().cloned());
            }
        }
    }
    let size: usize = data.values().map(Vec::len).sum();
    if size > MAX_DATA {
        let text = format!("Too long: {size} bytes of data; a {} may hold {MAX_DATA}", kind.as_str());
        findings.error(Code::Invalid, &Path::root().field("data"), text);
    }
    let immutable = flag(findings, root, "immutable");
    let secret_type = secret.then(|| secret_type(findings, root));
    // Of keys whose values cannot be read, that is said.
    if let Some(secret_type) = secret_type.as_ref().filter(|_| !findings.has_errors()) {
        validate::secret_data(secret_type, &data, findings);
    }
    if findings.has_errors() {
        return None;
    }
    let metadata = root.get("metadata");
    let text = |name: &str| metadata.and_then(|m| m.get(name)).and_then(Node::text).unwrap_or_default();
    let namespace = Some(text("namespace")).filter(|n| !n.is_empty()).unwrap_or("default");
    Some(DataObject {
        key: ObjectKey::new(kind, namespace, text("name")),
        data,
        binary,
        secret_type,
        immutable,
        // The file's path is set by who knows it: the source that read the bytes.
        origin: Origin { line: root.mark.line, ..Origin::default() },
    })
}

fn values(
    findings: &mut Findings<'_>,
    map: &Node,
    path: &Path,
    encoded: bool,
    secret: bool,
    data: &mut BTreeMap<String, Vec<u8>>,
) {
    let Kind::Map(entries) = &map.kind else {
        findings.broken(path, format!("expected a mapping of names to strings, got {}", map.describe()));
        return;
    };
    for entry in entries {
        let path = path.key(&entry.key);
        validate::data_key(&entry.key, &path, findings);
        let value = match &entry.value.kind {
            Kind::Null => Some(Vec::new()),
            Kind::Text(text) if encoded => decode(text).or_else(|| {
                // Never the text itself: it is most likely the secret.
                let text = match secret {
                    true => "is not base64; plain text goes under stringData".to_owned(),
                    false => format!("expected base64, got {}; plain text goes under data", quote(text)),
                };
                findings.error(Code::Type, &path, text);
                None
            }),
            Kind::Text(text) => Some(text.clone().into_bytes()),
            _ => {
                let got = if secret { "something else".to_owned() } else { entry.value.describe() };
                findings.broken(&path, format!("expected a string, got {got}; put it in quotes"));
                None
            }
        };
        if let Some(value) = value {
            data.insert(entry.key.clone(), value);
        }
    }
}

/// Line breaks may stand anywhere in it.
fn decode(text: &str) -> Option<Vec<u8>> {
    let clean: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    BASE64.decode(clean).ok()
}

fn flag(findings: &mut Findings<'_>, root: &Node, name: &str) -> bool {
    match root.get(name).map(|n| (&n.kind, n)) {
        None => false,
        Some((Kind::Bool(value), _)) => *value,
        Some((_, node)) => {
            let got = node.describe();
            findings.broken(&Path::root().field(name), format!("expected true or false, got {got}"));
            false
        }
    }
}

fn secret_type(findings: &mut Findings<'_>, root: &Node) -> String {
    match root.get("type").map(|n| (n.text(), n)) {
        None | Some((Some(""), _)) => "Opaque".to_owned(),
        Some((Some(text), _)) => text.to_owned(),
        Some((None, node)) => {
            let got = node.describe();
            findings.broken(&Path::root().field("type"), format!("expected a string, got {got}"));
            String::new()
        }
    }
}

/// Bytes in a JSON file.
mod in_base64 {
    use std::collections::BTreeMap;

    use base64::Engine;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    use super::BASE64;

    type Data = BTreeMap<String, Vec<u8>>;

    pub fn serialize<S: Serializer>(data: &Data, serializer: S) -> Result<S::Ok, S::Error> {
        let texts: BTreeMap<&String, String> = data.iter().map(|(k, v)| (k, BASE64.encode(v))).collect();
        texts.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Data, D::Error> {
        let texts: BTreeMap<String, String> = BTreeMap::deserialize(deserializer)?;
        texts.into_iter().map(|(k, v)| Ok((k, BASE64.decode(v).map_err(de::Error::custom)?))).collect()
    }
}
