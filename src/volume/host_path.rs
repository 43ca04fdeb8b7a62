//! hostPath: something that is on the host already, or is made there in the way its type says.

use std::fs::{self, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Volume;

use super::mount_table::{self, MountTable};
use super::{PreparedVolume, VolumeError, make_dir};

const FSTAB: &str = "/etc/fstab";

pub(super) fn prepare(volume: &Volume, mounts: &MountTable) -> Result<PreparedVolume, VolumeError> {
    let source = volume.host_path.clone().unwrap_or_default();
    let claim = Claim {
        volume: &volume.name,
        path: Path::new(&source.path),
        kind: source.type_.as_deref().unwrap_or_default(),
    };
    let fstab = fs::read_to_string(FSTAB).unwrap_or_default();
    claim.prepare(mounts, &mount_table::declared(&fstab))
}

/// What is made when nothing is there.
#[derive(Clone, Copy)]
enum Create {
    Nothing,
    Directory,
    File,
}

/// What a volume asks for.
struct Claim<'a> {
    volume: &'a str,
    path: &'a Path,
    kind: &'a str,
}

impl Claim<'_> {
    fn prepare(&self, mounts: &MountTable, declared: &[PathBuf]) -> Result<PreparedVolume, VolumeError> {
        let (wanted, create) = self.meaning()?;
        let found = match fs::metadata(self.path) {
            Ok(meta) => meta.file_type(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.create(create, mounts, declared)?;
                fs::metadata(self.path).map_err(VolumeError::io("look at", self.path))?.file_type()
            }
            Err(e) => return Err(VolumeError::io("look at", self.path)(e)),
        };
        if wanted.is_some_and(|wanted| wanted != name_of(found)) {
            return Err(VolumeError::Mismatch {
                volume: self.volume.to_owned(),
                path: self.path.to_owned(),
                kind: self.kind.to_owned(),
                found: name_of(found),
                wanted: wanted.unwrap_or_default(),
            });
        }
        Ok(PreparedVolume { host_path: self.path.to_owned(), is_file: !found.is_dir(), read_only: false })
    }

    /// What must be there, and what may be made.
    fn meaning(&self) -> Result<(Option<&'static str>, Create), VolumeError> {
        Ok(match self.kind {
            // containerd's CRI layer makes the directory when the kubelet asks for no type.
            "" => (None, Create::Directory),
            "DirectoryOrCreate" => (Some(DIRECTORY), Create::Directory),
            "Directory" => (Some(DIRECTORY), Create::Nothing),
            "FileOrCreate" => (Some(FILE), Create::File),
            "File" => (Some(FILE), Create::Nothing),
            "Socket" => (Some(SOCKET), Create::Nothing),
            "CharDevice" => (Some(CHAR_DEVICE), Create::Nothing),
            "BlockDevice" => (Some(BLOCK_DEVICE), Create::Nothing),
            other => {
                let what = format!("hostPath type {other:?}");
                return Err(VolumeError::Unsupported { volume: self.volume.to_owned(), what });
            }
        })
    }

    fn create(&self, create: Create, mounts: &MountTable, declared: &[PathBuf]) -> Result<(), VolumeError> {
        if let Ok(target) = fs::read_link(self.path) {
            return Err(self.waiting(format!("it is a link to {}, which does not exist", target.display())));
        }
        if matches!(create, Create::Nothing) {
            return Err(self.waiting("it does not exist".to_owned()));
        }
        // What is made below a mount point that is not mounted yet would be hidden later, with all the data
        // the pod wrote there.
        let real = resolve(self.path);
        let above = declared.iter().filter(|point| real.starts_with(point));
        if let Some(point) = above.max_by_key(|point| point.as_os_str().len())
            && !mounts.is_mount_point(point)
        {
            return Err(self.waiting(format!("{} is in {FSTAB} and not mounted", point.display())));
        }
        match create {
            Create::File => self.create_file(),
            _ => make_dir(self.path, 0o755),
        }
    }

    fn create_file(&self) -> Result<(), VolumeError> {
        let result = OpenOptions::new().write(true).create_new(true).mode(0o644).open(self.path);
        match result {
            // The parent is not made, as the kubelet does not either.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(self.waiting("the directory it is in does not exist".to_owned()))
            }
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                Err(VolumeError::io("create", self.path)(e))
            }
            _ => Ok(()),
        }
    }

    fn waiting(&self, reason: String) -> VolumeError {
        let kind = if self.kind.is_empty() { "unset" } else { self.kind };
        VolumeError::Waiting {
            volume: self.volume.to_owned(),
            path: self.path.to_owned(),
            kind: kind.to_owned(),
            reason,
        }
    }
}

const DIRECTORY: &str = "a directory";
const FILE: &str = "a regular file";
const SOCKET: &str = "a socket";
const CHAR_DEVICE: &str = "a character device";
const BLOCK_DEVICE: &str = "a block device";

fn name_of(kind: FileType) -> &'static str {
    match kind {
        k if k.is_dir() => DIRECTORY,
        k if k.is_file() => FILE,
        k if k.is_socket() => SOCKET,
        k if k.is_char_device() => CHAR_DEVICE,
        k if k.is_block_device() => BLOCK_DEVICE,
        _ => "a named pipe",
    }
}

/// The path with the links in its existing part followed.
fn resolve(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (ancestor.canonicalize(), path.strip_prefix(ancestor)) {
            return real.join(rest);
        }
    }
    path.to_owned()
}

#[cfg(test)]
mod tests;
