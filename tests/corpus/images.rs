//! Stand-ins for the images of the corpus: busybox, with the programs that the manifests name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::Container;
use podling::image::ImageRef;
use podling::manifest::PodManifest;
use serde_json::json;

use crate::support::image::busybox;
use crate::support::{Image, Instance};

/// What an image's entry point does.
#[derive(Clone, Copy, Default, PartialEq)]
enum Kind {
    #[default]
    Shell,
    Serves,
}

#[derive(Default)]
struct Wanted {
    kind: Kind,
    ports: BTreeSet<i32>,
    /// Program to whether it is a plain init container's, which must end.
    programs: BTreeMap<String, bool>,
    unprivileged: bool,
    /// What is mounted of it where it is a volume.
    directories: BTreeSet<String>,
}

/// One image for each name that the pods use.
pub fn for_pods<'a>(corpus: &Path, pods: impl Iterator<Item = &'a PodManifest>) -> Vec<Image> {
    let kinds = kinds(corpus);
    let applets = applets();
    let mut wanted: BTreeMap<String, Wanted> = BTreeMap::new();
    for spec in pods.filter_map(|p| p.pod.spec.as_ref()) {
        let never_root = spec.security_context.as_ref().and_then(|s| s.run_as_non_root) == Some(true);
        let init = spec.init_containers.iter().flatten();
        let init = init.map(|c| (c, c.restart_policy.as_deref() != Some("Always")));
        for (container, ends) in init.chain(spec.containers.iter().map(|c| (c, false))) {
            let Some(name) = &container.image else { continue };
            let Ok(full) = ImageRef::parse(name) else { continue };
            let image = wanted.entry(full.name()).or_default();
            image.kind = kinds.get(name.as_str()).copied().unwrap_or_default();
            add(image, container, ends, &applets);
            image.unprivileged |= never_root || container_never_root(container);
        }
        for volume in spec.volumes.iter().flatten() {
            let reference = volume.image.as_ref().and_then(|i| i.reference.as_deref());
            if let Some(full) = reference.and_then(|name| ImageRef::parse(name).ok()) {
                let mounts = spec.containers.iter().flat_map(|c| c.volume_mounts.iter().flatten());
                let of_this = mounts.filter(|m| m.name == volume.name).filter_map(|m| m.sub_path.clone());
                wanted.entry(full.name()).or_default().directories.extend(of_this);
            }
        }
    }
    wanted.iter().map(|(name, wanted)| build(name, wanted)).collect()
}

fn container_never_root(container: &Container) -> bool {
    container.security_context.as_ref().and_then(|s| s.run_as_non_root) == Some(true)
}

fn add(image: &mut Wanted, container: &Container, ends: bool, applets: &BTreeSet<String>) {
    image.ports.extend(container.ports.iter().flatten().map(|p| p.container_port));
    // Without a command, the first argument is the program where the image has no entry point of its own.
    let words = container.command.iter().flatten().chain(container.args.iter().flatten());
    if let Some(program) = words.into_iter().next()
        && program.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c))
        && !program.is_empty()
        && !program.ends_with('/')
        && !applets.contains(program)
        && !applets.contains(program.trim_start_matches("/bin/"))
    {
        let stub = image.programs.entry(program.clone()).or_insert(ends);
        *stub |= ends;
    }
}

fn build(name: &str, wanted: &Wanted) -> Image {
    let serve = |p: &i32| format!("nc -lk -p {p} -e true & ");
    let listeners: String = wanted.ports.iter().map(serve).collect();
    let mut image =
        Image::shell(name).program("stand-in", &format!("#!/bin/sh\n{listeners}\nexec sleep 100000\n"));
    for (program, ends) in &wanted.programs {
        let path = match program.strip_prefix('/') {
            Some(path) => path.to_owned(),
            None => format!("bin/{}", program.trim_start_matches("./")),
        };
        let shell = path.ends_with("bash") || path.ends_with("/sh");
        let script = match (shell, ends) {
            (true, _) => "#!/bin/sh\nexec /bin/sh \"$@\"\n",
            (_, true) => "#!/bin/sh\nexit 0\n",
            (_, false) => "#!/bin/sh\nexec sleep 100000\n",
        };
        image = image.program(&path, script);
    }
    for directory in &wanted.directories {
        image = image.program(&format!("{directory}/file"), "");
    }
    if wanted.kind == Kind::Serves {
        image = image.with("Entrypoint", json!(["/stand-in"])).with("Cmd", json!([]));
    }
    match wanted.unprivileged {
        true => image.with("User", json!("1000")),
        false => image,
    }
}

/// By name as written: whether there is a shell behind the entry point.
fn kinds(corpus: &Path) -> BTreeMap<String, Kind> {
    let table = fs::read_to_string(corpus.join("IMAGES.tsv")).expect("IMAGES.tsv");
    let columns = table.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>());
    columns
        .map(|c| (c[0].to_owned(), if c[4].starts_with("shell") { Kind::Shell } else { Kind::Serves }))
        .collect()
}

fn applets() -> BTreeSet<String> {
    let list = std::process::Command::new(busybox()).arg("--list").output().expect("busybox runs");
    String::from_utf8_lossy(&list.stdout).lines().map(str::to_owned).collect()
}

/// Gives them to podling in one archive.
pub fn import(instance: &Instance, images: &[Image]) {
    let archive = instance.root().join("stage/stand-ins.tar");
    fs::write(&archive, Image::archive_of(images)).expect("writable");
    instance.ok(&["image", "import", archive.to_str().expect("a path of ours")]);
    fs::remove_file(archive).expect("writable");
}
