//! FIFOs of commands that a killed podling began.
//!
//! A shim that is about to start a command opens its FIFOs and waits until somebody has opened the other end, up
//! to half a minute, and answers nothing meanwhile, for none of its containers. Where the other end died with the
//! podling, the next one stands in for it. What the command says is read and dropped, so that it never blocks.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// Looks until it is certain that no shim waits for a FIFO: longer than the half minute that it would.
const LOOKS: u32 = 400;

/// A FIFO whose one end is gone.
struct Orphan {
    path: PathBuf,
    /// The end that reads, for one that a command writes to.
    output: Option<File>,
    /// Somebody had opened the other end.
    met: bool,
}

/// Stands in for the other end of all FIFOs below `dir`, in a thread that ends with the last of them and removes
/// their directories.
pub fn adopt(dir: &Path) {
    let dirs: Vec<PathBuf> = entries(dir);
    let mut orphans: Vec<Orphan> = dirs.iter().flat_map(|d| entries(d)).filter_map(Orphan::new).collect();
    let work = move || {
        for _ in 0..LOOKS {
            orphans.retain_mut(|o| !o.is_over());
            if orphans.iter().all(|o| o.output.is_none() && o.met) {
                break;
            }
            std::thread::sleep(LOOK);
        }
        // Those that were met belong to commands that still run.
        while orphans.iter().any(|o| o.met && o.output.is_some()) {
            orphans.retain_mut(|o| o.met && !o.is_over());
            std::thread::sleep(LOOK * 5);
        }
        for dir in dirs {
            // One that stays is looked at again by the next podling.
            let _ = fs::remove_dir_all(dir);
        }
    };
    if let Err(e) = std::thread::Builder::new().name("podling-fifos".to_owned()).spawn(work) {
        tracing::warn!("cannot look after commands that an earlier podling began: {e}");
    }
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect()
}

impl Orphan {
    fn new(path: PathBuf) -> Option<Self> {
        fs::symlink_metadata(&path).ok().filter(|m| m.file_type().is_fifo())?;
        let output = match path.file_name().is_some_and(|n| n == "stdin") {
            true => None,
            false => Some(open(&path, true).ok()?),
        };
        Some(Self { path, output, met: false })
    }

    /// Looks once; true when there is nothing left to do.
    fn is_over(&mut self) -> bool {
        let Some(output) = &mut self.output else {
            // Opened and closed at once: the end of its input.
            return open(&self.path, false).is_ok();
        };
        let mut buffer = [0; 16 << 10];
        loop {
            match output.read(&mut buffer) {
                // Nobody holds the other end: not yet, or no longer.
                Ok(0) => return self.met,
                Ok(_) => self.met = true,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => {
                    self.met |= e.kind() == ErrorKind::WouldBlock;
                    return e.kind() != ErrorKind::WouldBlock;
                }
            }
        }
    }
}

/// Opens one end without waiting for the other; one to write to is an error while nobody reads.
fn open(path: &Path, read: bool) -> std::io::Result<File> {
    OpenOptions::new().read(read).write(!read).custom_flags(libc::O_NONBLOCK).open(path)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::fifo;
    use super::*;
    use crate::system::clock;

    #[test]
    fn who_waits_for_a_reader_or_a_writer_that_died_goes_on_and_nothing_is_left() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("podling-exec-1");
        fs::create_dir(&dir).unwrap();
        let (input, output) = (fifo(&dir, "stdin").unwrap(), fifo(&dir, "stdout").unwrap());
        let writer = std::thread::spawn(move || {
            let mut output = OpenOptions::new().write(true).open(output).unwrap();
            output.write_all(&vec![b'x'; 1 << 20]).unwrap();
        });
        let reader =
            std::thread::spawn(move || File::open(input).unwrap().read_to_end(&mut Vec::new()).unwrap());
        std::thread::sleep(LOOK);
        adopt(home.path());
        writer.join().unwrap();
        assert_eq!(reader.join().unwrap(), 0);
        let begun = clock::now();
        while dir.exists() && clock::now().since(begun) < LOOK * LOOKS * 2 {
            std::thread::sleep(LOOK);
        }
        assert!(!dir.exists());
    }
}
