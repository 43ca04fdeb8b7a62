//! Images: list, import, remove.

use std::path::{Path, PathBuf};

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::io::AsyncWriteExt as _;

use super::access::ArchiveRequest;
use super::query::Query;
use super::reply::{Answer, Refusal, json};
use super::routes::Routes;
use super::wire::{ImageList, Imported};

/// `GET /podling/v1/images`.
pub(super) async fn list(routes: &Routes) -> Answer {
    let mut items = routes.backend.runtime.images().await?;
    items.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(json(&ImageList { items }))
}

/// `POST /podling/v1/images?path=/abs/file.tar`, or with the archive as the body; `name` for what has none.
pub(super) async fn import(routes: &Routes, query: &Query, body: Incoming) -> Answer {
    let name = query.get("name").filter(|n| !n.is_empty()).map(str::to_owned);
    let runtime = &routes.backend.runtime;
    let imported = match query.get("path") {
        Some(path) if Path::new(path).is_absolute() => {
            runtime.import(ArchiveRequest { file: PathBuf::from(path), upload: false, name }).await?
        }
        Some(path) => return Err(Refusal::bad_request(format!("path: `{path}` is not an absolute path"))),
        None => {
            let upload = save(routes, body).await?;
            runtime.import(ArchiveRequest { file: upload.to_path_buf(), upload: true, name }).await?
        }
    };
    Ok(json(&imported))
}

/// Writes the body to a file beside the state, where there is room for images; it goes with the handle.
async fn save(routes: &Routes, mut body: Incoming) -> Result<tempfile::TempPath, Refusal> {
    let dir = routes.backend.paths.state();
    let failed =
        |e: std::io::Error| Refusal::internal(format!("cannot store the archive in {}: {e}", dir.display()));
    std::fs::create_dir_all(&dir).map_err(failed)?;
    let (file, path) = tempfile::Builder::new()
        .prefix(".import-")
        .suffix(".tar")
        .tempfile_in(&dir)
        .map_err(failed)?
        .into_parts();
    let mut file = tokio::fs::File::from_std(file);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Refusal::bad_request(format!("the archive broke off: {e}")))?;
        if let Ok(data) = frame.into_data() {
            file.write_all(&data).await.map_err(failed)?;
        }
    }
    file.flush().await.map_err(failed)?;
    Ok(path)
}

/// `DELETE /podling/v1/images?name=NAME`: the names that went. With `force=1` also an image that a pod runs.
pub(super) async fn remove(routes: &Routes, query: &Query) -> Answer {
    let name = query.get("name").ok_or_else(|| Refusal::bad_request("name: an image name is needed"))?;
    let names = routes.backend.runtime.remove_image(name.to_owned(), query.flag("force")).await?;
    Ok(json(&Imported { names, ..Imported::default() }))
}
