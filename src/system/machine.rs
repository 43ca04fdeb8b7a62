//! How much this machine has of what pods request.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Amounts of the whole machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Processors in use.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// Bytes of the file system that holds the pods' files.
    pub disk: u64,
    /// Bytes of huge pages by resource name (`hugepages-2Mi`).
    pub huge_pages: BTreeMap<String, u64>,
    /// Processor architecture, in Go's words as Kubernetes uses them.
    pub arch: &'static str,
}

impl Machine {
    /// Looks at the machine; `state` is a directory for the pods' files, which need not exist yet.
    pub fn detect(state: &Path) -> Self {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kibibytes: u64 =
            total.and_then(|v| v.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0);
        let disk = state.ancestors().find_map(|dir| rustix::fs::statvfs(dir).ok());
        Self {
            cpus: std::thread::available_parallelism()
                .map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
            memory: kibibytes * 1024,
            disk: disk.map_or(0, |d| d.f_blocks.saturating_mul(d.f_frsize)),
            huge_pages: huge_pages(Path::new("/sys/kernel/mm/hugepages")),
            arch: arch(std::env::consts::ARCH),
        }
    }
}

/// Go's word for Rust's.
fn arch(rust: &'static str) -> &'static str {
    match rust {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        "loongarch64" => "loong64",
        other => other,
    }
}

/// Sizes are directories such as `hugepages-2048kB`.
fn huge_pages(dir: &Path) -> BTreeMap<String, u64> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let sized = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let kibibytes: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let count: u64 = fs::read_to_string(entry.path().join("nr_hugepages")).ok()?.trim().parse().ok()?;
        let size = match kibibytes {
            k if k % (1 << 20) == 0 => format!("{}Gi", k >> 20),
            k if k % (1 << 10) == 0 => format!("{}Mi", k >> 10),
            k => format!("{k}Ki"),
        };
        Some((format!("hugepages-{size}"), count.saturating_mul(kibibytes).saturating_mul(1024)))
    });
    sized.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_it_runs_on_has_something_of_everything() {
        let machine = Machine::detect(Path::new("/nonexistent/state"));
        assert!(machine.cpus > 0 && machine.memory > 1 << 20 && machine.disk > 1 << 20, "{machine:?}");
    }

    #[test]
    fn huge_pages_are_named_as_kubernetes_names_them() {
        let dir = tempfile::tempdir().unwrap();
        for (name, count) in
            [("hugepages-2048kB", "3\n"), ("hugepages-1048576kB", "1\n"), ("hugepages-64kB", "2\n")]
        {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("nr_hugepages"), count).unwrap();
        }
        let found: Vec<_> = huge_pages(dir.path()).into_iter().collect();
        let expected =
            [("hugepages-1Gi", 1 << 30), ("hugepages-2Mi", 6 << 20), ("hugepages-64Ki", 128 << 10)];
        assert_eq!(found, expected.map(|(name, bytes)| (name.to_owned(), bytes)));
    }

    #[test]
    fn architectures_have_the_names_of_go() {
        assert_eq!(["x86_64", "aarch64", "arm", "riscv64"].map(arch), ["amd64", "arm64", "arm", "riscv64"]);
    }
}
