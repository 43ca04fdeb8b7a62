//! Leases: what holds blobs and layers while nothing refers to them yet.

use containerd_client::services::v1::leases_client::LeasesClient;
use containerd_client::services::v1::{
    AddResourceRequest, CreateRequest, DeleteRequest, ListRequest, Resource,
};

use super::Containerd;
use super::client::{DEADLINE, Lane};
use super::error::RuntimeError;

/// How long a lease outlives a podling that died under it.
const EXPIRES: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);

/// Label with the process that took a lease out, and the boot it ran in.
const OWNER: &str = "podling.dev/owner";

/// A lease. It ends by [`Lease::release`], or with the value, or after an hour.
#[derive(Debug)]
pub struct Lease {
    client: Containerd,
    id: String,
    held: bool,
}

impl Containerd {
    /// Takes out a lease for `purpose`, a short word that goes into its id.
    pub async fn lease(&self, purpose: &str) -> Result<Lease, RuntimeError> {
        let id = format!("podling-{purpose}-{}", uuid::Uuid::new_v4().simple());
        // The wall clock, because containerd compares with it. A clock that jumps ahead meanwhile can
        // only end the lease early, which shows as a missing blob and a repeated import.
        let expires = (jiff::Timestamp::now() + EXPIRES).to_string();
        let labels = [("containerd.io/gc.expire".to_owned(), expires), (OWNER.to_owned(), owner())].into();
        let mut client = LeasesClient::new(self.channel());
        let request = self.request(CreateRequest { id: id.clone(), labels });
        self.call("create lease", &id, DEADLINE, Lane::Store, client.create(request)).await?;
        Ok(Lease { client: self.under_lease(&id)?, id, held: true })
    }

    /// Ends the leases of podlings that died under them, and returns how many there were.
    pub async fn end_stale_leases(&self) -> Result<usize, RuntimeError> {
        let mut client = LeasesClient::new(self.channel());
        let request = self.request(ListRequest::default());
        let answer = self.call("list leases", "", DEADLINE, Lane::Store, client.list(request)).await?;
        let mut ended = 0;
        for lease in answer.leases {
            if lease.labels.get(OWNER).is_some_and(|owner| !is_alive(owner)) {
                delete(self, &lease.id).await?;
                ended += 1;
            }
        }
        Ok(ended)
    }

    /// Has the lease of this client, if it is under one, hold a blob (`kind` "content") or snapshot
    /// ("snapshots/overlayfs") that may exist already. Do this before looking whether it exists: what is
    /// found but not held can be collected the next moment.
    pub(crate) async fn hold(&self, kind: &str, id: &str) -> Result<(), RuntimeError> {
        let Some(lease) = self.lease_id() else { return Ok(()) };
        let resource = Resource { id: id.to_owned(), r#type: kind.to_owned() };
        let mut client = LeasesClient::new(self.channel());
        let request = self.request(AddResourceRequest { id: lease.to_owned(), resource: Some(resource) });
        match self.call("add to lease", lease, DEADLINE, Lane::Store, client.add_resource(request)).await {
            Err(e) if !e.is_already_exists() => Err(e),
            _ => Ok(()),
        }
    }
}

fn owner() -> String {
    format!("{}/{}", crate::system::clock::boot_id(), std::process::id())
}

/// Whether the process that an owner label names is still there; one that cannot be told counts as alive.
fn is_alive(owner: &str) -> bool {
    let Some((boot, pid)) = owner.split_once('/') else { return true };
    boot == crate::system::clock::boot_id() && pid.parse().map_or(true, crate::system::process::is_alive)
}

impl Lease {
    /// A client whose every call is held by this lease.
    pub fn client(&self) -> &Containerd {
        &self.client
    }

    /// Ends the lease. What nothing refers to by now goes with the next garbage collection.
    pub async fn release(mut self) -> Result<(), RuntimeError> {
        self.held = false;
        delete(&self.client, &self.id).await
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let (true, Ok(runtime)) = (self.held, tokio::runtime::Handle::try_current()) else { return };
        let (client, id) = (self.client.clone(), std::mem::take(&mut self.id));
        runtime.spawn(async move {
            if let Err(e) = delete(&client, &id).await {
                tracing::debug!("{e}; it ends by itself within an hour");
            }
        });
    }
}

async fn delete(client: &Containerd, id: &str) -> Result<(), RuntimeError> {
    let mut leases = LeasesClient::new(client.channel());
    let request = client.request(DeleteRequest { id: id.to_owned(), sync: false });
    match client.call("delete lease", id, DEADLINE, Lane::Store, leases.delete(request)).await {
        Err(e) if !e.is_not_found() => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_stale_when_its_process_or_its_boot_is_gone() {
        assert!(is_alive(&owner()));
        assert!(!is_alive(&format!("another-boot/{}", std::process::id())));
        assert!(!is_alive(&format!("{}/4194305", crate::system::clock::boot_id())));
        assert!(is_alive("made by somebody else"));
    }
}
