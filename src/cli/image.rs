//! `podling image`, and `podling get images`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hyper::Method;
use hyper::body::Bytes;
use jiff::Timestamp;
use tokio::sync::mpsc;

use super::args::{Image, ImageVerb, Output};
use super::client::Client;
use super::error::{CliError, say};
use super::table::{Table, row};
use super::{Outcome, age, output, pull};
use crate::image::ImageRef;
use crate::server::query::Query;
use crate::server::wire::{ImageList, Imported};
use crate::server::{Body, ImageInfo};

const PATH: &str = "/podling/v1/images";
/// Bytes of standard input sent at a time.
const CHUNK: usize = 64 * 1024;

pub(super) async fn image(client: Client, args: Image) -> Outcome {
    match args.verb {
        ImageVerb::Ls { names, output, quiet, no_trunc } => {
            let format = if quiet { Listing::Quiet } else { Listing::Output(output.unwrap_or_default()) };
            list_as(&client, format, no_trunc, &names).await
        }
        ImageVerb::Import { files, name } => import(&client, &files, name.as_deref()).await,
        ImageVerb::Pull { names, quiet } => pull::pull(&client, &names, quiet).await,
        ImageVerb::Inspect { name, output } => {
            pull::inspect(&client, &name, output.unwrap_or(Output::Json)).await
        }
        ImageVerb::Export { file, names } => pull::export(&client, &file, &names).await,
        ImageVerb::Prune { all, dry_run, force: _ } => pull::prune(&client, all, dry_run).await,
        ImageVerb::Rm { names, force } => remove(&client, &names, force).await,
    }
}

/// Prints the images, or those of `names`.
pub(super) async fn list(client: &Client, format: Output, names: &[String]) -> Outcome {
    list_as(client, Listing::Output(format), false, names).await
}

enum Listing {
    /// As `-o` has it.
    Output(Output),
    /// Names alone.
    Quiet,
}

async fn list_as(client: &Client, format: Listing, no_trunc: bool, names: &[String]) -> Outcome {
    let ImageList { mut items } = client.get(PATH, &Query::default()).await?;
    let missing: Vec<&String> = names.iter().filter(|n| !items.iter().any(|i| is_meant(n, i))).collect();
    items.retain(|image| names.is_empty() || names.iter().any(|n| is_meant(n, image)));
    let mut out = std::io::stdout().lock();
    match format {
        Listing::Output(format @ (Output::Json | Output::Yaml)) => {
            output::object(&mut out, format, &ImageList { items })?;
        }
        Listing::Output(Output::Name) => {
            for image in &items {
                writeln!(out, "image/{}", image.name)?;
            }
        }
        Listing::Quiet => {
            for image in &items {
                writeln!(out, "{}", image.name)?;
            }
        }
        Listing::Output(_) if items.is_empty() => {
            if missing.is_empty() {
                say("No images found; import one with `podling image import FILE`.");
            }
        }
        Listing::Output(format) => {
            let text = table(&items, format == Output::Wide, no_trunc, Timestamp::now());
            out.write_all(text.as_bytes())?;
        }
    }
    for name in &missing {
        say(&format!("Error from server (NotFound): images {name:?} not found"));
    }
    Ok(if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether `text` is the image's name, in short or in full, its repository, its digest or id or the beginning of one.
fn is_meant(text: &str, image: &ImageInfo) -> bool {
    if image.name == text {
        return true;
    }
    let digits = text.strip_prefix("sha256:").unwrap_or(text);
    let begins = |digest: &str| digest.strip_prefix("sha256:").is_some_and(|d| d.starts_with(digits));
    if digits.len() >= 4 && (begins(&image.digest) || begins(&image.id)) {
        return true;
    }
    let Ok(reference) = ImageRef::parse(text) else { return false };
    let of_repository =
        || ImageRef::parse(&image.name).is_ok_and(|i| i.repository() == reference.repository());
    let last = text.rsplit('/').next().unwrap_or_default();
    image.name == reference.name() || !last.contains([':', '@']) && of_repository()
}

fn table(images: &[ImageInfo], wide: bool, no_trunc: bool, now: Timestamp) -> String {
    let short = |digest: &str| match wide || no_trunc {
        true => digest.to_owned(),
        false => digest.strip_prefix("sha256:").unwrap_or(digest).chars().take(12).collect(),
    };
    let cells = |image: &ImageInfo| {
        let mut cells = vec![image.name.clone(), short(&image.digest)];
        if wide {
            cells.extend([short(&image.id), if image.pinned { "true".into() } else { "false".into() }]);
        }
        cells.extend([size(image.size), age::since(image.created, now)]);
        cells
    };
    let mut rows = match wide {
        true => vec![row(["IMAGE", "DIGEST", "ID", "PINNED", "SIZE", "AGE"])],
        false => vec![row(["IMAGE", "DIGEST", "SIZE", "AGE"])],
    };
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

async fn import(client: &Client, files: &[PathBuf], name: Option<&str>) -> Outcome {
    let mut code = ExitCode::SUCCESS;
    for file in files {
        match import_one(client, file, name).await {
            Ok(Imported { names, left_out }) => {
                for name in names {
                    writeln!(std::io::stdout().lock(), "image/{name} imported")?;
                }
                for text in left_out {
                    say(&text);
                    code = ExitCode::FAILURE;
                }
            }
            // The others may be whole.
            Err(error) if files.len() > 1 => {
                say(&error.to_string());
                code = ExitCode::FAILURE;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(code)
}

async fn import_one(client: &Client, file: &Path, name: Option<&str>) -> Result<Imported, CliError> {
    let failed = |e| CliError::Failed(format!("cannot import {}: {e}", file.display()));
    let mut query = Query::default();
    if let Some(name) = name {
        query.add("name", name);
    }
    if file == Path::new("-") {
        return upload(client, &query, Box::new(std::io::stdin())).await;
    }
    // A pipe, such as the shell's `<(docker save app)`, is nothing to the daemon.
    let kind = std::fs::metadata(file).map_err(failed)?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        let pipe = std::fs::File::open(file).map_err(failed)?;
        return upload(client, &query, Box::new(pipe)).await;
    }
    // The daemon opens the file by itself, so its path must mean the same there.
    let path = std::fs::canonicalize(file).map_err(failed)?;
    let path = path.to_str().ok_or_else(|| {
        CliError::Failed(format!("cannot import {}: its path is not UTF-8", file.display()))
    })?;
    query.add("path", path);
    client.call(Method::POST, &query.on(PATH), Body::Whole(None)).await
}

/// Sends what `input` gives as the archive, as fast as the daemon takes it.
async fn upload(
    client: &Client,
    query: &Query,
    mut input: Box<dyn std::io::Read + Send>,
) -> Result<Imported, CliError> {
    let target = query.on(PATH);
    let (sender, receiver) = mpsc::channel::<Bytes>(2);
    let (failed, mut failure) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut buffer = vec![0; CHUNK];
        loop {
            match input.read(&mut buffer) {
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
        answer = client.call(Method::POST, &target, Body::Stream(receiver)) => answer,
        Some(error) = failure.recv() => Err(CliError::Failed(format!("cannot read the archive: {error}"))),
    }
}

async fn remove(client: &Client, names: &[String], force: bool) -> Outcome {
    let mut code = ExitCode::SUCCESS;
    for name in names {
        let name = name.strip_prefix("image/").unwrap_or(name);
        let mut query = Query::default();
        query.add("name", name);
        if force {
            query.add("force", "1");
        }
        let answer = client.call(Method::DELETE, &query.on(PATH), Body::Whole(None)).await;
        match answer {
            Ok(Imported { names, .. }) => {
                for name in names {
                    writeln!(std::io::stdout().lock(), "image/{name} removed")?;
                }
            }
            Err(error) if names.len() > 1 => {
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

    fn image() -> ImageInfo {
        ImageInfo {
            name: "docker.io/library/busybox:1".into(),
            digest: "sha256:0123456789abcdef0123".into(),
            size: 2_000_000,
            created: None,
            id: "sha256:fedcba9876".into(),
            pinned: true,
        }
    }

    #[test]
    fn the_table_shortens_digests_unless_it_is_wide() {
        let table = |wide, no_trunc| table(&[image()], wide, no_trunc, Timestamp::UNIX_EPOCH);
        assert_eq!(
            table(false, false),
            "IMAGE                         DIGEST         SIZE     AGE\n\
             docker.io/library/busybox:1   0123456789ab   2.00MB   <unknown>\n"
        );
        assert!(table(false, true).contains("sha256:0123456789abcdef0123   2.00MB"));
        assert!(
            table(true, false).contains("sha256:0123456789abcdef0123   sha256:fedcba9876   true     2.00MB")
        );
    }

    #[test]
    fn an_image_is_meant_by_its_name_its_repository_or_the_beginning_of_an_id() {
        for text in [
            "busybox:1",
            "busybox",
            "library/busybox",
            "01234567",
            "sha256:fedc",
            "docker.io/library/busybox:1",
        ] {
            assert!(is_meant(text, &image()), "{text}");
        }
        for text in ["busybox:2", "box", "0", "fedcba0", "quay.io/busybox", ""] {
            assert!(!is_meant(text, &image()), "{text}");
        }
    }
}
