//! `podling.dev/devices`: devices of the host for containers that are not privileged.

use k8s_openapi::api::core::v1::Pod;

/// A device, or a directory of devices, for a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceWish {
    /// Path on the host.
    pub host: String,
    /// Path in the container.
    pub container: String,
    /// What may be done: some of `r`, `w` and `m` (make nodes).
    pub access: String,
}

pub(super) fn check(text: &str, _: &Pod) -> Result<(), String> {
    parse(text).map(drop)
}

fn parse(text: &str) -> Result<Vec<DeviceWish>, String> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let all: Vec<DeviceWish> = parts.map(one).collect::<Result<_, _>>()?;
    if all.is_empty() { Err("must be devices such as /dev/ttyUSB0:rw,/dev/dri".to_owned()) } else { Ok(all) }
}

/// `HOST[:CONTAINER][:ACCESS]`.
fn one(part: &str) -> Result<DeviceWish, String> {
    let mut fields: Vec<&str> = part.split(':').collect();
    let is_access = |text: &str| !text.starts_with('/');
    let access = match fields.len() {
        2.. if fields.last().is_some_and(|last| is_access(last)) => fields.pop().unwrap_or_default(),
        _ => "rw",
    };
    let bad =
        || format!("{part:?} is no device: write HOST, HOST:rw, or HOST:CONTAINER:rw with absolute paths");
    let (host, container) = match fields[..] {
        [host] => (host, host),
        [host, container] => (host, container),
        _ => return Err(bad()),
    };
    for path in [host, container] {
        if !path.starts_with('/') || path.split('/').any(|step| step == "..") || path.contains('\0') {
            return Err(bad());
        }
    }
    let fine = !access.is_empty()
        && access.bytes().all(|b| b"rwm".contains(&b))
        && access.bytes().enumerate().all(|(i, b)| !access.as_bytes()[..i].contains(&b));
    if !fine {
        return Err(format!("{part:?}: what may be done is some of r, w and m, such as rw"));
    }
    Ok(DeviceWish { host: host.to_owned(), container: container.to_owned(), access: access.to_owned() })
}

/// The devices for a container, in the order written.
pub fn devices(pod: &Pod, container: &str) -> Vec<DeviceWish> {
    super::container_value(pod, "devices", container).and_then(|v| parse(v).ok()).unwrap_or_default()
}
