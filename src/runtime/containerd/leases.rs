//! Leases: what holds blobs and layers while nothing refers to them yet.

use std::collections::HashMap;

use containerd_client::services::v1::leases_client::LeasesClient;
use containerd_client::services::v1::{
    AddResourceRequest, CreateRequest, DeleteRequest, ListRequest, Resource,
};

use super::Containerd;
use super::client::{DEADLINE, Lane};
use super::error::RuntimeError;

/// How long a lease outlives a podling that died under it.
const EXPIRES: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);

/// How long what a pull fetched waits for the next try, or for a podling that died under it.
const PULL_EXPIRES: jiff::SignedDuration = jiff::SignedDuration::from_hours(24);
/// A pull does not begin under a lease with less time left than this.
const PULL_LEAST: jiff::SignedDuration = jiff::SignedDuration::from_hours(12);

/// Label with containerd's own time of a lease's end.
const EXPIRE: &str = "containerd.io/gc.expire";
/// Label with the image that is being pulled under a lease.
const IMAGE: &str = "podling.dev/pulling";
/// Label with the process that took a lease out, and the boot it ran in.
const OWNER: &str = "podling.dev/owner";

/// A lease. It ends by [`Lease::release`], or with the value, or by itself after its time.
#[derive(Debug)]
pub struct Lease {
    client: Containerd,
    id: String,
    held: bool,
}

impl Containerd {
    /// Takes out a lease for `purpose`, a short word that goes into its id.
    pub async fn lease(&self, purpose: &str) -> Result<Lease, RuntimeError> {
        self.create_lease(purpose, EXPIRES, (OWNER, owner())).await
    }

    /// The lease under which `image` is pulled. One that an earlier try left behind is gone on with, with all
    /// that it holds.
    pub(crate) async fn pull_lease(&self, image: &str) -> Result<Lease, RuntimeError> {
        let late = jiff::Timestamp::now() + PULL_LEAST;
        let stays = |labels: &HashMap<String, String>| {
            let end: Option<jiff::Timestamp> = labels.get(EXPIRE)?.parse().ok();
            end.filter(|end| *end > late)
        };
        for lease in self.pull_leases(image).await? {
            if stays(&lease.labels).is_some() {
                return Ok(Lease { client: self.under_lease(&lease.id)?, id: lease.id, held: true });
            }
        }
        self.create_lease("pull", PULL_EXPIRES, (IMAGE, image.to_owned())).await
    }

    /// Ends all leases under which `image` was pulled.
    pub(crate) async fn end_pull_leases(&self, image: &str) -> Result<(), RuntimeError> {
        for lease in self.pull_leases(image).await? {
            delete(self, &lease.id).await?;
        }
        Ok(())
    }

    async fn pull_leases(
        &self,
        image: &str,
    ) -> Result<Vec<containerd_client::services::v1::Lease>, RuntimeError> {
        let mut client = LeasesClient::new(self.channel());
        let request = self.request(ListRequest::default());
        let answer = self.call("list leases", "", DEADLINE, Lane::Store, client.list(request)).await?;
        Ok(answer.leases.into_iter().filter(|l| l.labels.get(IMAGE).is_some_and(|i| i == image)).collect())
    }

    async fn create_lease(
        &self,
        purpose: &str,
        time: jiff::SignedDuration,
        label: (&str, String),
    ) -> Result<Lease, RuntimeError> {
        let id = format!("podling-{purpose}-{}", uuid::Uuid::new_v4().simple());
        // The wall clock, because containerd compares with it. A clock that jumps ahead meanwhile can
        // only end the lease early, which shows as a missing blob and a repeated import.
        let expires = (jiff::Timestamp::now() + time).to_string();
        let labels = [(EXPIRE.to_owned(), expires), (label.0.to_owned(), label.1)].into();
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

    /// Leaves the lease to its time, so that what it holds is there for the next try.
    pub fn keep(mut self) {
        self.held = false;
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
                tracing::debug!("{e}; it ends by itself");
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
