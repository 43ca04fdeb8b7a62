//! Takes archives and layout directories apart, on a thread of its own, in bounded memory.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use tokio::sync::mpsc;

use super::documents::DOCUMENT_MAX;

/// Bytes of a blob sent at once; with the few pieces in flight this bounds the memory of an import.
const CHUNK: usize = 512 << 10;
/// Pieces in flight.
const IN_FLIGHT: usize = 3;
/// Largest sum of all JSON documents of one archive, in bytes.
const DOCUMENTS_MAX: u64 = 4 * DOCUMENT_MAX;

/// A part of an archive, in the order of the archive.
#[derive(Debug, PartialEq)]
pub(super) enum Piece {
    /// A JSON document, whole.
    Document { path: String, data: Vec<u8> },
    /// A blob begins; `Data` follows until it is complete.
    Blob { path: String, size: u64 },
    /// The next bytes of the blob.
    Data(Vec<u8>),
    /// One path stands for another.
    Link { path: String, target: String },
    /// Nothing follows.
    End,
}

/// Why reading stopped.
#[derive(Debug)]
pub(super) enum ReadError {
    /// It could not be opened.
    Open(io::Error),
    /// It is something else than a tar file.
    NotTar,
    /// It is packed by a program that is not known here.
    Packed(&'static str),
    /// It breaks off or is damaged.
    Damaged(String),
}

type Sender = mpsc::Sender<Result<Piece, ReadError>>;

/// Starts reading `path`. The thread ends with the receiver.
pub(super) fn start(path: PathBuf) -> io::Result<mpsc::Receiver<Result<Piece, ReadError>>> {
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    // Not from the runtime's blocking pool, which is small and would be held for the whole import.
    std::thread::Builder::new().name("image-reader".to_owned()).spawn(move || {
        let read = if path.is_dir() { read_directory(&path, &sender) } else { read_file(&path, &sender) };
        // A receiver that is gone wants nothing more.
        let _ = sender.blocking_send(read.map(|()| Piece::End));
    })?;
    Ok(receiver)
}

fn read_file(path: &Path, sender: &Sender) -> Result<(), ReadError> {
    read_tar(decompress(BufReader::with_capacity(64 << 10, open(path)?))?, sender)
}

/// Opens a regular file. Another one, such as a pipe that nobody writes to, would hold its reader for ever.
fn open(path: &Path) -> Result<File, ReadError> {
    if !fs::metadata(path).map_err(ReadError::Open)?.is_file() {
        let text = "it is neither a regular file nor a directory";
        return Err(ReadError::Open(io::Error::new(io::ErrorKind::InvalidInput, text)));
    }
    File::open(path).map_err(ReadError::Open)
}

/// What else people pack archives with, by how it begins.
const OTHERS: [(&[u8], &str); 5] = [
    (b"\xfd7zXZ\0", "xz"),
    (b"BZh", "bzip2"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"PK\x03\x04", "zip"),
    (b"7z\xbc\xaf", "7z"),
];

/// Undoes compression, which is told by the content: names lie.
fn decompress(mut file: BufReader<File>) -> Result<Box<dyn Read>, ReadError> {
    let head = file.fill_buf().map_err(ReadError::Open)?;
    if head.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(flate2::bufread::MultiGzDecoder::new(file)));
    }
    if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let decoder = zstd::stream::read::Decoder::with_buffer(file);
        return Ok(Box::new(decoder.map_err(|e| ReadError::Damaged(e.to_string()))?));
    }
    if head.is_empty() {
        return Err(ReadError::Damaged("it is empty".to_owned()));
    }
    if let Some((_, how)) = OTHERS.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Err(ReadError::Packed(how));
    }
    Ok(Box::new(file))
}

fn read_tar(input: impl Read, sender: &Sender) -> Result<(), ReadError> {
    let damaged = |e: io::Error| ReadError::Damaged(e.to_string());
    let mut archive = tar::Archive::new(input);
    let mut first = true;
    let mut documents = 0;
    for entry in archive.entries().map_err(|_| ReadError::NotTar)? {
        let mut entry = match entry {
            Ok(entry) => entry,
            Err(_) if first => return Err(ReadError::NotTar),
            Err(e) => return Err(damaged(e)),
        };
        first = false;
        let path = normalise(&entry.path().map_err(damaged)?.to_string_lossy());
        let kind = entry.header().entry_type();
        if kind.is_symlink() || kind.is_hard_link() {
            let Some(target) = entry.link_name().map_err(damaged)? else { continue };
            let target = link_target(&path, &target.to_string_lossy(), kind.is_symlink());
            send(sender, Piece::Link { path, target })?;
        } else if kind.is_file() || kind.is_contiguous() {
            let size = entry.size();
            send_file(path, size, &mut entry, &mut documents, sender)?;
        }
    }
    Ok(())
}

fn read_directory(dir: &Path, sender: &Sender) -> Result<(), ReadError> {
    let mut documents = 0;
    let mut files: Vec<String> = ["index.json", "manifest.json"].map(str::to_owned).into();
    let list = |path: &Path| match fs::read_dir(path) {
        Ok(entries) => entries.map(|e| e.map(|e| e.file_name().to_string_lossy().into_owned())).collect(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(vec![]),
        Err(e) => Err(e),
    };
    for algorithm in list(&dir.join("blobs")).map_err(ReadError::Open)? {
        let blobs = list(&dir.join("blobs").join(&algorithm)).map_err(ReadError::Open)?;
        files.extend(blobs.into_iter().map(|name| format!("blobs/{algorithm}/{name}")));
    }
    for path in files {
        match File::open(dir.join(&path)) {
            Ok(mut file) => {
                let size = file.metadata().map_err(ReadError::Open)?.len();
                send_file(path, size, &mut file, &mut documents, sender)?;
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(ReadError::Open(e)),
        }
    }
    Ok(())
}

/// Sends what an image consists of and passes over the rest.
fn send_file(
    path: String,
    size: u64,
    input: &mut impl Read,
    documents: &mut u64,
    sender: &Sender,
) -> Result<(), ReadError> {
    let damaged = |e: io::Error| ReadError::Damaged(format!("{path}: {e}"));
    if is_blob(&path) {
        send(sender, Piece::Blob { path: path.clone(), size })?;
        let mut left = size;
        while left > 0 {
            let want = left.min(CHUNK as u64);
            let mut data = Vec::with_capacity(want as usize);
            input.by_ref().take(want).read_to_end(&mut data).map_err(damaged)?;
            if data.is_empty() {
                return Err(ReadError::Damaged(format!("{path}: {left} of {size} bytes are missing")));
            }
            left -= data.len() as u64;
            send(sender, Piece::Data(data))?;
        }
        return Ok(());
    }
    if !is_document(&path) {
        return Ok(());
    }
    *documents += size;
    if size > DOCUMENT_MAX || *documents > DOCUMENTS_MAX {
        let why = format!("{path}: a JSON document of {size} bytes is more than an image has");
        return Err(ReadError::Damaged(why));
    }
    let mut data = Vec::new();
    input.take(size).read_to_end(&mut data).map_err(damaged)?;
    if data.len() as u64 != size {
        let missing = size - data.len() as u64;
        return Err(ReadError::Damaged(format!("{path}: {missing} of {size} bytes are missing")));
    }
    send(sender, Piece::Document { path, data })
}

fn send(sender: &Sender, piece: Piece) -> Result<(), ReadError> {
    sender.blocking_send(Ok(piece)).map_err(|_| ReadError::Damaged("the import was given up".to_owned()))
}

/// Blobs of an OCI layout, and the layers of the forms that `docker save` and its likes wrote over time:
/// `<id>/layer.tar`, `<digest>.tar`, `<digest>.tar.gz`.
fn is_blob(path: &str) -> bool {
    path.starts_with("blobs/")
        || [".tar", ".tar.gz", ".tgz", ".tar.zst"].iter().any(|end| path.ends_with(end))
}

/// Documents at the top, and docker configurations, which some tools name by digest alone.
fn is_document(path: &str) -> bool {
    if path.contains('/') {
        return false;
    }
    let name = path.strip_prefix("sha256:").unwrap_or(path);
    path.ends_with(".json") || (name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// The path without `.`, `..` and leading slashes.
pub(super) fn normalise(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// What a link at `path` points at: a symbolic link from beside itself, a hard link from the top.
fn link_target(path: &str, target: &str, symbolic: bool) -> String {
    match path.rsplit_once('/') {
        Some((parent, _)) if symbolic && !target.starts_with('/') => normalise(&format!("{parent}/{target}")),
        _ => normalise(target),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_links_are_resolved_within_the_archive() {
        assert_eq!(normalise("./a//b/../c"), "a/c");
        assert_eq!(normalise("/../x"), "x");
        assert_eq!(link_target("abc/layer.tar", "../def/layer.tar", true), "def/layer.tar");
        assert_eq!(link_target("abc/layer.tar", "def/layer.tar", false), "def/layer.tar");
    }

    #[test]
    fn layers_and_documents_are_told_from_the_rest() {
        for blob in ["blobs/sha256/ab", "ab/layer.tar", "ab.tar", "ab.tar.gz"] {
            assert!(is_blob(blob), "{blob}");
        }
        let hex = "ab".repeat(32);
        for document in
            ["index.json", "manifest.json", &format!("{hex}.json"), &format!("sha256:{hex}"), &hex]
        {
            assert!(is_document(document) && !is_blob(document), "{document}");
        }
        for other in ["ab/json", "ab/VERSION", "repositories", "oci-layout"] {
            assert!(!is_blob(other) && !is_document(other), "{other}");
        }
    }

    fn pieces(path: &Path) -> Vec<Result<Piece, ReadError>> {
        let mut receiver = start(path.to_owned()).unwrap();
        std::iter::from_fn(|| receiver.blocking_recv()).collect()
    }

    fn tar_of(name: &str, data: &[u8]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, data).unwrap();
        builder.into_inner().unwrap()
    }

    #[test]
    fn an_archive_that_breaks_off_says_how_much_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cut.tar");
        let whole = tar_of("blobs/sha256/ab", &vec![7; 5000]);
        fs::write(&path, &whole[..2000]).unwrap();
        match pieces(&path).pop() {
            Some(Err(ReadError::Damaged(why))) => assert!(why.starts_with("blobs/sha256/ab: "), "{why}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_file_that_is_no_archive_is_told_from_a_damaged_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text.tar");
        fs::write(&path, "hello ".repeat(500)).unwrap();
        assert!(matches!(pieces(&path).pop(), Some(Err(ReadError::NotTar))));
        assert!(matches!(pieces(&dir.path().join("none")).pop(), Some(Err(ReadError::Open(_)))));
    }

    #[test]
    fn compression_is_told_by_content_whatever_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image.tar");
        let plain = tar_of("index.json", b"{}");
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut gz, &plain).unwrap();
        let zst = zstd::stream::encode_all(plain.as_slice(), 1).unwrap();
        for data in [plain, gz.finish().unwrap(), zst] {
            fs::write(&path, data).unwrap();
            let read: Vec<_> = pieces(&path).into_iter().map(Result::unwrap).collect();
            let document = Piece::Document { path: "index.json".into(), data: b"{}".to_vec() };
            assert_eq!(read, [document, Piece::End]);
        }
    }
}
