//! Finding the programs of the host.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Searched besides `PATH`, which may be empty under an init system and leaves administration programs out in a
/// login shell.
const USUAL_DIRS: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The directories that programs are searched in: those of `PATH`, then the usual ones. For us and, as their `PATH`,
/// for the programs that we start.
pub fn search_path() -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = path.to_string_lossy();
    let mut dirs: Vec<&str> = path.split(':').filter(|dir| !dir.is_empty()).collect();
    let missing: Vec<&str> = USUAL_DIRS.into_iter().filter(|dir| !dirs.contains(dir)).collect();
    dirs.extend(missing);
    dirs.join(":")
}

/// The executable `name` as a shell would find it, but never below the working directory.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let executable =
        |p: &PathBuf| fs::metadata(p).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    search_path().split(':').filter(|d| d.starts_with('/')).map(|d| Path::new(d).join(name)).find(executable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_whatever_the_path_says() {
        for dir in USUAL_DIRS {
            assert!(search_path().split(':').any(|p| p == dir));
        }
        assert!(find_program("sh").is_some_and(|p| p.is_absolute()));
        assert_eq!(find_program("no-such-program-anywhere"), None);
    }
}
