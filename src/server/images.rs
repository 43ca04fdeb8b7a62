//! Images: list, import, remove.

use std::path::{Path, PathBuf};

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::io::AsyncWriteExt as _;

use super::query::Query;
use super::reply::{Answer, Refusal, json, success};
use super::routes::Routes;
use super::wire::{ImageList, Imported};

/// `GET /podling/v1/images`.
pub(super) async fn list(routes: &Routes) -> Answer {
    let mut items = routes.backend.runtime.images().await?;
    items.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(json(&ImageList { items }))
}

/// `POST /podling/v1/images?path=/abs/file.tar`, or with the archive as the body.
pub(super) async fn import(routes: &Routes, query: &Query, body: Incoming) -> Answer {
    let names = match query.get("path") {
        Some(path) if Path::new(path).is_absolute() => {
            routes.backend.runtime.import(PathBuf::from(path)).await?
        }
        Some(path) => return Err(Refusal::bad_request(format!("path: `{path}` is not an absolute path"))),
        None => {
            let upload = save(routes, body).await?;
            routes.backend.runtime.import(upload.to_path_buf()).await?
        }
    };
    Ok(json(&Imported { names }))
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

/// `DELETE /podling/v1/images?name=NAME`.
pub(super) async fn remove(routes: &Routes, query: &Query) -> Answer {
    let name = query.get("name").ok_or_else(|| Refusal::bad_request("name: an image name is needed"))?;
    routes.backend.runtime.remove_image(name.to_owned()).await?;
    Ok(success())
}
