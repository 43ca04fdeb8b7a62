//! Small reads of files that somebody else writes.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// The last `limit` bytes of a file, as text; empty when it cannot be read. Bytes that are no UTF-8 are
/// replaced.
pub fn tail(path: &Path, limit: u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(limit)))?;
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_file_is_read() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), "abcdef").expect("writable");
        assert_eq!(tail(file.path(), 2), "ef");
        assert_eq!(tail(file.path(), 100), "abcdef");
    }

    #[test]
    fn a_file_that_is_not_there_is_empty() {
        assert_eq!(tail(Path::new("/nonexistent/file"), 10), "");
    }
}
