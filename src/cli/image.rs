//! `podling image`, and `podling get images`.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hyper::Method;
use hyper::body::Bytes;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use tokio::sync::mpsc;

use super::args::{Image, ImageVerb, Output};
use super::client::Client;
use super::error::{CliError, say};
use super::table::{Table, row};
use super::{Outcome, age, output, pull};
use crate::server::query::Query;
use crate::server::wire::{ImageList, Imported};
use crate::server::{Body, ImageInfo};

const PATH: &str = "/podling/v1/images";
/// Bytes of standard input sent at a time.
const CHUNK: usize = 64 * 1024;

pub(super) async fn image(client: Client, args: Image) -> Outcome {
    match args.verb {
        ImageVerb::Ls { output } => list(&client, output.unwrap_or_default(), &[]).await,
        ImageVerb::Import { files } => import(&client, &files).await,
        ImageVerb::Pull { names } => pull::pull(&client, &names).await,
        ImageVerb::Inspect { name, output } => {
            pull::inspect(&client, &name, output.unwrap_or(Output::Json)).await
        }
        ImageVerb::Export { file, names } => pull::export(&client, &file, &names).await,
        ImageVerb::Prune => pull::prune(&client).await,
        ImageVerb::Rm { names } => remove(&client, &names).await,
    }
}

/// Prints the images, or those of `names`.
pub(super) async fn list(client: &Client, format: Output, names: &[String]) -> Outcome {
    let ImageList { mut items } = client.get(PATH, &Query::default()).await?;
    let missing: Vec<&String> = names.iter().filter(|n| !items.iter().any(|i| i.name == **n)).collect();
    items.retain(|image| names.is_empty() || names.contains(&image.name));
    let mut out = std::io::stdout().lock();
    match format {
        Output::Json | Output::Yaml => output::object(&mut out, format, &ImageList { items })?,
        Output::Name => {
            for image in &items {
                writeln!(out, "image/{}", image.name)?;
            }
        }
        Output::Table | Output::Wide if items.is_empty() => {
            if missing.is_empty() {
                say("No images found; import one with `podling image import FILE`.");
            }
        }
        Output::Table | Output::Wide => {
            let text = table(&items, format == Output::Wide, Timestamp::now());
            out.write_all(text.as_bytes())?;
        }
    }
    for name in &missing {
        say(&format!("Error from server (NotFound): images {name:?} not found"));
    }
    Ok(if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn table(images: &[ImageInfo], wide: bool, now: Timestamp) -> String {
    let cells = |image: &ImageInfo| {
        let digest = image.digest.strip_prefix("sha256:").unwrap_or(&image.digest);
        let digest = if wide { image.digest.clone() } else { digest.chars().take(12).collect() };
        vec![image.name.clone(), digest, size(image.size), age::since(image.created, now)]
    };
    let mut rows = vec![row(["IMAGE", "DIGEST", "SIZE", "AGE"])];
    rows.extend(images.iter().map(cells));
    Table::default().render(&rows)
}

/// Bytes as people read them, in powers of 1000: `742kB`, `1.23MB`.
fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 1000.0 {
            let places = usize::from(value < 100.0 && unit != "B") + usize::from(value < 10.0 && unit != "B");
            return format!("{value:.places$}{unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.2}TB")
}

async fn import(client: &Client, files: &[PathBuf]) -> Outcome {
    for file in files {
        let Imported { names } = if file == Path::new("-") {
            upload(client).await?
        } else {
            let failed = |e| CliError::Failed(format!("cannot import {}: {e}", file.display()));
            // The daemon opens the file by itself, so its path must mean the same there.
            let path = std::fs::canonicalize(file).map_err(failed)?;
            let path = path.to_str().ok_or_else(|| {
                CliError::Failed(format!("cannot import {}: its path is not UTF-8", file.display()))
            })?;
            let mut query = Query::default();
            query.add("path", path);
            client.call(Method::POST, &query.on(PATH), Body::Whole(None)).await?
        };
        for name in names {
            writeln!(std::io::stdout().lock(), "image/{name} imported")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Sends standard input as the archive, as fast as the daemon takes it.
async fn upload(client: &Client) -> Result<Imported, CliError> {
    let (sender, receiver) = mpsc::channel::<Bytes>(2);
    let (failed, mut failure) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut buffer = vec![0; CHUNK];
        loop {
            match stdin.read(&mut buffer) {
                Ok(0) => return,
                Ok(n) => {
                    if sender.blocking_send(Bytes::copy_from_slice(&buffer[..n])).is_err() {
                        return;
                    }
                }
                Err(error) => {
                    // The sender lives on until the failure is seen: half an archive must not look whole.
                    let _ = failed.blocking_send(error);
                    std::thread::park();
                }
            }
        }
    });
    tokio::select! {
        answer = client.call(Method::POST, PATH, Body::Stream(receiver)) => answer,
        Some(error) = failure.recv() => Err(CliError::Failed(format!("cannot read standard input: {error}"))),
    }
}

async fn remove(client: &Client, names: &[String]) -> Outcome {
    let mut code = ExitCode::SUCCESS;
    for name in names {
        let name = name.strip_prefix("image/").unwrap_or(name);
        let mut query = Query::default();
        query.add("name", name);
        let answer: Result<Status, _> = client.call(Method::DELETE, &query.on(PATH), Body::Whole(None)).await;
        match answer {
            Ok(_) => writeln!(std::io::stdout().lock(), "image/{name} removed")?,
            Err(error) if error.is_not_found() => {
                say(&error.to_string());
                code = ExitCode::FAILURE;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        for (bytes, expected) in [
            (0, "0B"),
            (999, "999B"),
            (1000, "1.00kB"),
            (12_340, "12.3kB"),
            (742_000, "742kB"),
            (1_234_567, "1.23MB"),
            (5_000_000_000_000, "5.00TB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }

    #[test]
    fn the_table_shortens_digests_unless_it_is_wide() {
        let image = ImageInfo {
            name: "docker.io/library/busybox:1".into(),
            digest: "sha256:0123456789abcdef0123".into(),
            size: 2_000_000,
            created: None,
        };
        assert_eq!(
            table(std::slice::from_ref(&image), false, Timestamp::UNIX_EPOCH),
            "IMAGE                         DIGEST         SIZE     AGE\n\
             docker.io/library/busybox:1   0123456789ab   2.00MB   <unknown>\n"
        );
        assert!(table(&[image], true, Timestamp::UNIX_EPOCH).contains("sha256:0123456789abcdef0123"));
    }
}
