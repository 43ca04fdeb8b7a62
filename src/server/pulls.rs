//! Images by order: pulled, looked into, written out, and removed when nobody wants them.

use std::path::{Path, PathBuf};

use super::access::PruneRequest;
use super::query::Query;
use super::reply::{Answer, Body, Refusal, json, success, typed};
use super::routes::Routes;
use super::wire::Imported;

/// `POST /podling/v1/images/pull?name=NAME`: a line of JSON for each step.
pub(super) async fn pull(routes: &Routes, query: &Query) -> Answer {
    let lines = routes.backend.runtime.pull_image(name(query)?).await?;
    Ok(typed("application/json", Body::Stream(lines)))
}

/// `GET /podling/v1/images/inspect?name=NAME`.
pub(super) async fn inspect(routes: &Routes, query: &Query) -> Answer {
    Ok(json(&routes.backend.runtime.inspect_image(name(query)?).await?))
}

/// `POST /podling/v1/images/export?path=/abs/file.tar&name=NAME[,NAME]`.
pub(super) async fn export(routes: &Routes, query: &Query) -> Answer {
    let path = query.get("path").filter(|p| Path::new(p).is_absolute());
    let path = path.ok_or_else(|| Refusal::bad_request("path: an absolute path is needed"))?;
    let names = name(query)?.split(',').map(str::to_owned).collect();
    routes.backend.runtime.export_images(names, PathBuf::from(path)).await?;
    Ok(success())
}

/// `POST /podling/v1/images/prune`: the names that went, or with `dryRun=1` would.
pub(super) async fn prune(routes: &Routes, query: &Query) -> Answer {
    let request = PruneRequest { all: query.flag("all"), dry_run: query.flag("dryRun") };
    let names = routes.backend.runtime.prune_images(request).await?;
    Ok(json(&Imported { names, ..Imported::default() }))
}

fn name(query: &Query) -> Result<String, Refusal> {
    let name = query.get("name").filter(|n| !n.is_empty());
    name.map(str::to_owned).ok_or_else(|| Refusal::bad_request("name: an image name is needed"))
}
