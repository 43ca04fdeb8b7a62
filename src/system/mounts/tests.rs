use proptest::prelude::*;

use super::*;

/// A directory whose mounts go with it.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
    fn dir(&self, name: &str) -> PathBuf {
        let dir = self.0.path().join(name);
        fs::create_dir_all(&dir).unwrap();
        dir
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = unmount_under(self.0.path());
    }
}

#[test]
fn a_tmpfs_has_the_size_and_mode_asked_for() {
    let scratch = Scratch::new();
    let shm = scratch.dir("shm");
    mount_tmpfs(&shm, Tmpfs::SHM).unwrap();
    let stat = rustix::fs::statvfs(&shm).unwrap();
    assert_eq!(stat.f_blocks * stat.f_frsize, 64 << 20);
    assert!(stat.f_flag.contains(StatVfsMountFlags::NOEXEC | StatVfsMountFlags::NODEV));
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&shm).unwrap());
    assert_eq!(mode & 0o7777, 0o1777);
}

#[test]
fn a_mount_point_is_told_from_a_directory_and_stacked_mounts_all_go() {
    let scratch = Scratch::new();
    let dir = scratch.dir("with space");
    assert!(!is_mountpoint(&dir).unwrap());
    mount_tmpfs(&dir, Tmpfs::SHM).unwrap();
    mount_tmpfs(&dir, Tmpfs { size: None, mode: 0o700, exec: true }).unwrap();
    assert!(is_mountpoint(&dir).unwrap());
    assert_eq!(mounts_under(scratch.0.path()).unwrap(), [dir.clone(), dir.clone()]);
    unmount(&dir).unwrap();
    assert!(!is_mountpoint(&dir).unwrap());
    unmount(&dir).unwrap();
    unmount(&dir.join("missing")).unwrap();
    assert!(!is_mountpoint(&dir.join("missing")).unwrap());
}

#[test]
fn a_read_only_bind_keeps_the_flags_of_its_source() {
    let scratch = Scratch::new();
    let (source, target) = (scratch.dir("source"), scratch.dir("target"));
    mount_tmpfs(&source, Tmpfs::SHM).unwrap();
    bind(&source, &target, true).unwrap();
    let flags = rustix::fs::statvfs(&target).unwrap().f_flag;
    assert!(
        flags.contains(StatVfsMountFlags::RDONLY | StatVfsMountFlags::NOEXEC | StatVfsMountFlags::NOSUID)
    );
    assert!(fs::write(target.join("x"), "").is_err());
    fs::write(source.join("x"), "").unwrap();
}

#[test]
fn nested_mounts_are_unmounted_from_the_inside() {
    let scratch = Scratch::new();
    let outer = scratch.dir("outer");
    mount_tmpfs(&outer, Tmpfs::SHM).unwrap();
    let inner = outer.join("inner");
    fs::create_dir(&inner).unwrap();
    mount_tmpfs(&inner, Tmpfs::SHM).unwrap();
    unmount_under(scratch.0.path()).unwrap();
    assert!(mounts_under(scratch.0.path()).unwrap().is_empty());
}

#[test]
fn a_failed_mount_names_its_path() {
    let text = mount_tmpfs(Path::new("/nonexistent"), Tmpfs::SHM).unwrap_err().to_string();
    assert!(text.starts_with("cannot mount a tmpfs on /nonexistent: No such file"), "{text}");
    let text = bind(Path::new("/nonexistent"), Path::new("/also-missing"), false).unwrap_err().to_string();
    assert!(text.starts_with("cannot bind-mount onto /also-missing: "), "{text}");
}

#[test]
fn escapes_of_the_mount_table_are_undone() {
    let table = b"36 35 98:0 / /a\\040b\\134c rw - ext4 /dev/x rw\n37 36 0:1 / /a\\011 rw - tmpfs t rw\n\n";
    let points: Vec<PathBuf> = mount_points(table).collect();
    assert_eq!(points, [PathBuf::from("/a b\\c"), PathBuf::from("/a\t")]);
    assert_eq!(unescape(b"end\\04"), b"end\\04");
}

proptest! {
    #[test]
    fn what_the_kernel_escapes_comes_back_whole(name in proptest::collection::vec(any::<u8>(), 0..40)) {
        let escaped: Vec<u8> = name
            .iter()
            .flat_map(|b| match b {
                b' ' | b'\t' | b'\n' | b'\\' => format!("\\{b:03o}").into_bytes(),
                other => vec![*other],
            })
            .collect();
        prop_assert_eq!(unescape(&escaped), name);
    }
}

#[test]
fn how_mounts_pass_on_is_read_from_the_mount_that_a_path_is_on() {
    let table = b"1 0 8:1 / / rw shared:1 - ext4 /dev/a rw\n2 1 8:2 / /srv rw master:3 - ext4 /dev/b rw\n\
                  3 2 8:3 / /srv/in rw - ext4 /dev/c rw\n";
    let at = |path: &str| super::passing_in(table, Path::new(path));
    assert_eq!((at("/etc").shared, at("/etc").slave), (true, false));
    assert_eq!((at("/srv/x").shared, at("/srv/x").slave, at("/srv/x").point), (false, true, "/srv".into()));
    assert_eq!((at("/srv/in").shared, at("/srv/in").slave), (false, false));
}
