//! A mount as containerd hands it out for a snapshot.

/// One mount of a root file system, to be made by the shim (or passed to [`Diff.Apply`] for a layer).
///
/// [`Diff.Apply`]: super::Containerd
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// File system type, "overlay" or "bind".
    pub kind: String,
    /// What is mounted.
    pub source: String,
    /// Where, relative to the root; empty for the root itself.
    pub target: String,
    /// Mount options, among them overlay's `lowerdir=` and `upperdir=`.
    pub options: Vec<String>,
}

impl Mount {
    /// The directory on this host that takes the writes: overlay's upper directory or the source of a
    /// bind mount. None for a read-only overlay.
    pub fn writable_dir(&self) -> Option<&str> {
        if self.kind == "overlay" {
            return self.options.iter().find_map(|o| o.strip_prefix("upperdir="));
        }
        Some(&self.source)
    }
}

impl From<containerd_client::types::Mount> for Mount {
    fn from(m: containerd_client::types::Mount) -> Self {
        Self { kind: m.r#type, source: m.source, target: m.target, options: m.options }
    }
}

impl From<&Mount> for containerd_client::types::Mount {
    fn from(m: &Mount) -> Self {
        Self {
            r#type: m.kind.clone(),
            source: m.source.clone(),
            target: m.target.clone(),
            options: m.options.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_writable_directory_of_an_overlay_is_its_upper() {
        let mut m = Mount {
            kind: "overlay".into(),
            source: "overlay".into(),
            target: String::new(),
            options: vec!["lowerdir=/a:/b".into()],
        };
        assert_eq!(m.writable_dir(), None);
        m.options.push("upperdir=/u".into());
        assert_eq!(m.writable_dir(), Some("/u"));
        m.kind = "bind".into();
        m.source = "/s".into();
        assert_eq!(m.writable_dir(), Some("/s"));
    }
}
