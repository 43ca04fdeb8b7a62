//! `podling.dev/shm-size`: how large a pod's `/dev/shm` may grow.

use k8s_openapi::api::core::v1::Pod;

use crate::manifest::Quantity;

pub(super) fn check(text: &str, pod: &Pod) -> Result<(), String> {
    parse(text)?;
    if pod.spec.as_ref().and_then(|spec| spec.host_ipc) == Some(true) {
        return Err("the pod has the host's /dev/shm (hostIPC: true), whose size is the host's".to_owned());
    }
    Ok(())
}

fn parse(text: &str) -> Result<u64, String> {
    let size = Quantity::parse(text.trim()).ok().and_then(|q| u64::try_from(q.value()).ok());
    size.filter(|bytes| *bytes > 0).ok_or_else(|| "must be a size above 0 such as 256Mi".to_owned())
}

/// Bytes that the pod's `/dev/shm` may hold; none where the manifest does not say.
pub fn shm_size(pod: &Pod) -> Option<u64> {
    parse(super::value(pod, "shm-size")?).ok()
}
