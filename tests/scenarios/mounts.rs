//! Volumes and what else a container mounts or may use of the host, as the container sees it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::support::instance::Options;
use crate::support::manifest::SLEEP;
use crate::support::{Image, Instance, host, shell};

/// A manifest with annotations, lines of YAML.
fn annotated(text: &str, annotations: &[&str]) -> String {
    let lines: Vec<String> = annotations.iter().map(|line| format!("\n    {line}")).collect();
    text.replacen("\nspec:", &format!("\n  annotations:{}\nspec:", lines.concat()), 1)
}

/// A sleeping pod with these volumes and mounts.
fn mounting(name: &str, volumes: &str, mounts: &str) -> String {
    shell(name, SLEEP, &format!("volumes: {volumes}")) + &format!("    volumeMounts: {mounts}\n")
}

/// `mount` with these arguments on the host.
fn mount(args: &[&str]) {
    assert!(Command::new("mount").args(args).status().expect("mount runs").success(), "mount {args:?}");
}

/// A directory of the host that is a shared mount; unmounted at the end.
struct Shared(tempfile::TempDir);

impl Shared {
    fn new() -> Self {
        let dir = host::scratch();
        let path = dir.path().to_str().expect("a path of letters").to_owned();
        mount(&["-t", "tmpfs", "tmpfs", &path]);
        mount(&["--make-shared", &path]);
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        host::unmount_under(self.path());
    }
}

#[test]
fn parts_of_volumes_are_mounted_where_the_manifest_says_and_outlive_restarts() {
    let mut instance = Instance::start();
    let text = mounting(
        "parts",
        "[{name: v, emptyDir: {}}]",
        "[{name: v, mountPath: /all}, {name: v, mountPath: /one, subPath: a/b}, \
         {name: v, mountPath: /two, subPathExpr: 'logs/$(WHO)'}]",
    ) + "    env: [{name: WHO, value: me}]\n";
    instance.write("parts.yaml", &text);
    let view = instance.ready("parts");
    instance.exec("parts", "echo x > /one/f; echo y > /two/f");
    assert_eq!(instance.exec("parts", "cat /all/a/b/f /all/logs/me/f; stat -c %a /one"), "x\ny\n777");
    instance.restart_podling();
    assert_eq!(instance.ready("parts").id("main"), view.id("main"));
    host::signal(instance.pid(&view, "main"), rustix::process::Signal::KILL);
    instance.until_pod("parts", "runs again", |p| p.restarts("main") == 1 && p.is_ready());
    assert_eq!(instance.exec("parts", "cat /one/f /two/f"), "x\ny");
    let missing =
        mounting("missing", "[{name: v, emptyDir: {}}]", "[{name: v, mountPath: /v, subPathExpr: $(NOPE)}]");
    instance.write("missing.yaml", &missing);
    let view = instance.until_pod("missing", "waits", |p| p.waiting("main") == "CreateContainerConfigError");
    assert!(view.waiting_message("main").contains("the container has no variable NOPE"));
    let empty =
        mounting("empty", "[{name: v, emptyDir: {}}]", "[{name: v, mountPath: /v, subPathExpr: $(NIL)}]");
    instance.write("empty.yaml", &(empty + "    env: [{name: NIL, value: ''}]\n"));
    let view = instance.until_pod("empty", "waits", |p| p.waiting("main") == "CreateContainerConfigError");
    assert!(view.waiting_message("main").contains("the container's variable NIL is empty"));
}

#[test]
fn a_link_in_a_volume_never_leads_a_part_of_it_outside() {
    let instance = Instance::start();
    let volume = host::scratch();
    fs::create_dir(volume.path().join("etc")).expect("writable");
    fs::write(volume.path().join("etc/mine"), "").expect("writable");
    symlink("/etc", volume.path().join("absolute")).expect("writable");
    symlink("../../../../../../../../etc", volume.path().join("up")).expect("writable");
    let text = mounting(
        "links",
        &format!("[{{name: v, hostPath: {{path: {}}}}}]", volume.path().display()),
        "[{name: v, mountPath: /one, subPath: absolute}, {name: v, mountPath: /two, subPath: up}]",
    );
    instance.write("links.yaml", &text);
    instance.ready("links");
    assert_eq!(instance.exec("links", "ls /one /two"), "/one:\nmine\n\n/two:\nmine");
}

#[test]
fn mounts_are_made_from_the_outside_in_and_over_files_too() {
    let instance = Instance::start();
    let file = host::scratch();
    fs::write(file.path().join("motd"), "hello\n").expect("writable");
    let text = mounting(
        "order",
        &format!(
            "[{{name: a, emptyDir: {{}}}}, {{name: b, emptyDir: {{medium: Memory, sizeLimit: 1Mi, mode: 0750}}}}, {{name: f, hostPath: {{path: {}/motd, type: File}}}}]",
            file.path().display()
        ),
        "[{name: b, mountPath: /data/inner/deep}, {name: a, mountPath: /data}, \
         {name: a, mountPath: /quiet, bindMountOptions: [noexec]}, \
         {name: f, mountPath: /etc/image, readOnly: true}]",
    );
    instance.write("order.yaml", &text);
    instance.ready("order");
    instance.exec("order", "touch /data/x /data/inner/deep/y");
    assert_eq!(
        instance.exec(
            "order",
            "grep -c ' /data/inner/deep tmpfs' /proc/mounts; cat /etc/image; stat -c %a /data/inner/deep"
        ),
        "1\nhello\n750"
    );
    assert_eq!(instance.exec("order", "echo no 2>/dev/null > /etc/image || echo refused"), "refused");
    let run = "cp /bin/busybox /data/true; /data/true && echo ran; /quiet/true 2>/dev/null || echo refused";
    assert_eq!(instance.exec("order", run), "ran\nrefused");
    let free = "dd if=/dev/zero of=/data/inner/deep/z bs=64k count=32 2>&1 | grep -c 'No space'";
    assert_eq!(instance.exec("order", free), "1", "the size limit is a hard one");
}

#[test]
fn mounts_made_later_pass_as_far_as_the_manifest_says_and_read_only_reaches_them_too() {
    let instance = Instance::start();
    let shared = Shared::new();
    for dir in ["late", "early"] {
        fs::create_dir(shared.path().join(dir)).expect("writable");
    }
    let early = shared.path().join("early").display().to_string();
    mount(&["-t", "tmpfs", "tmpfs", &early]);
    let volume = format!("[{{name: v, hostPath: {{path: {}}}}}]", shared.path().display());
    let text = mounting(
        "passing",
        &volume,
        "[{name: v, mountPath: /none}, {name: v, mountPath: /in, mountPropagation: HostToContainer}, \
         {name: v, mountPath: /ro, readOnly: true}, \
         {name: v, mountPath: /rro, readOnly: true, recursiveReadOnly: Enabled}]",
    );
    instance.write("passing.yaml", &text);
    instance.ready("passing");
    mount(&["-t", "tmpfs", "tmpfs", &shared.path().join("late").display().to_string()]);
    fs::write(shared.path().join("late/f"), "").expect("writable");
    assert_eq!(instance.exec("passing", "ls /in/late /none/late"), "/in/late:\nf\n\n/none/late:");
    let written = "for d in /ro /rro; do touch $d/early/$$ 2>/dev/null && echo $d; done; true";
    assert_eq!(
        instance.exec("passing", written),
        "/ro",
        "as under a kubelet, plain readOnly is that one mount"
    );

    let both = mounting("both", &volume, "[{name: v, mountPath: /out, mountPropagation: Bidirectional}]");
    let both = both.replace(
        SLEEP,
        "mkdir /out/made; mount -t tmpfs tmpfs /out/made; touch /out/made/f; sleep 1d & wait",
    ) + "    securityContext: {privileged: true}\n";
    instance.write("both.yaml", &both);
    instance.until("the container's mount is on the host", |_| {
        shared.path().join("made/f").exists().then_some(())
    });
}

#[test]
fn a_path_that_must_be_there_or_be_mounted_is_waited_for() {
    let instance = Instance::start();
    let place = host::scratch();
    let (directory, point) = (place.path().join("dir"), place.path().join("point"));
    fs::create_dir(&point).expect("writable");
    let volumes =
        |path: &Path| format!("[{{name: v, hostPath: {{path: {}, type: Directory}}}}]", path.display());
    instance.write("dir.yaml", &mounting("dir", &volumes(&directory), "[{name: v, mountPath: /v}]"));
    let text = mounting("point", &volumes(&point), "[{name: v, mountPath: /v}]");
    instance.write("point.yaml", &annotated(&text, &["podling.dev/require-mountpoint: v"]));
    let waits = |name: &str| instance.until_pod(name, "waits", |p| !p.waiting_message("main").is_empty());
    let said = waits("dir").waiting_message("main");
    assert!(said.contains(&format!("waiting for {}", directory.display())), "{said}");
    instance.until("the mount point is waited for", |i| {
        let said = i.pod("point")?.waiting_message("main");
        said.contains(&format!("waiting for {} to be a mount point", point.display())).then_some(())
    });
    fs::create_dir(&directory).expect("writable");
    mount(&["-t", "tmpfs", "tmpfs", &point.display().to_string()]);
    fs::write(point.join("f"), "").expect("writable");
    instance.ready("dir");
    instance.ready("point");
    assert_eq!(instance.exec("point", "ls /v"), "f");
    instance.remove("point.yaml");
    instance.gone("point");
    host::unmount_under(place.path());
}

/// Says of each device whether it can be opened for reading.
fn opens(instance: &Instance, pod: &str, devices: &str) -> String {
    let script = format!("for d in {devices}; do ( : < $d ) 2>/dev/null && echo $d; done; true");
    instance.exec(pod, &script)
}

#[test]
fn devices_open_where_they_are_given_and_nowhere_else() {
    let instance = Instance::start();
    let typed =
        "[{name: d, hostPath: {path: /dev/fuse, type: CharDevice}}, {name: u, hostPath: {path: /dev/fuse}}]";
    let mounts = "[{name: d, mountPath: /dev/mine}]";
    instance.write("typed.yaml", &mounting("typed", typed, mounts));
    instance.write("plain.yaml", &mounting("plain", typed, "[{name: u, mountPath: /dev/mine}]"));
    let given = ["podling.dev/devices: '/dev/fuse:/dev/given:rw'"];
    instance.write("given.yaml", &annotated(&shell("given", SLEEP, ""), &given));
    for name in ["typed", "plain", "given"] {
        instance.ready(name);
    }
    // /dev/hwrng has the number 10:183; nobody gave it.
    instance.exec("typed", "mknod /tmp/other c 10 183");
    assert_eq!(opens(&instance, "typed", "/dev/mine /tmp/other"), "/dev/mine");
    assert_eq!(opens(&instance, "plain", "/dev/mine"), "", "without a type it is a file like any other");
    assert_eq!(opens(&instance, "given", "/dev/given"), "/dev/given");
    let absent = annotated(&shell("absent", SLEEP, ""), &["podling.dev/devices: /dev/ttyUSB77"]);
    instance.write("absent.yaml", &absent);
    instance.until("the device is waited for", |i| {
        i.pod("absent")?.waiting_message("main").contains("waiting for /dev/ttyUSB77").then_some(())
    });
}

#[test]
fn a_claim_is_a_directory_that_outlives_its_pods_or_a_block_device_put_in_its_place() {
    let instance = Instance::start();
    let volume = "[{name: v, persistentVolumeClaim: {claimName: data}}]";
    let text = mounting("claim", volume, "[{name: v, mountPath: /v}]");
    instance.write("claim.yaml", &text);
    instance.ready("claim");
    instance.exec("claim", "echo kept > /v/f");
    instance.remove("claim.yaml");
    instance.gone("claim");
    let claims = instance.root().join("var/lib/podling/claims/default");
    assert_eq!(fs::read_to_string(claims.join("data/f")).expect("it stays"), "kept\n");
    let text = text
        .replace("claimName: data", "claimName: data, readOnly: true")
        .replace("name: claim", "name: reader");
    instance.write("reader.yaml", &text);
    instance.ready("reader");
    assert_eq!(instance.exec("reader", "cat /v/f; touch /v/g 2>/dev/null || echo refused"), "kept\nrefused");

    symlink("/dev/loop0", claims.join("disk")).expect("writable");
    let block = "volumes: [{name: d, persistentVolumeClaim: {claimName: disk}}]";
    let text = shell("block", SLEEP, block) + "    volumeDevices: [{name: d, devicePath: /dev/xvda}]\n";
    instance.write("block.yaml", &text);
    instance.ready("block");
    assert_eq!(instance.exec("block", "test -b /dev/xvda && echo there"), "there");
    assert_eq!(opens(&instance, "block", "/dev/xvda"), "/dev/xvda");
}

#[test]
fn an_image_as_a_volume_shows_its_files_and_nothing_can_be_changed_or_run_there() {
    let images = vec![Image::shell("test/shell:1"), Image::shell("test/model:1").with("Cmd", json!(["sh"]))];
    let mut instance = Instance::with(Options { images, ..Options::default() });
    let text = mounting(
        "model",
        "[{name: m, image: {reference: 'test/model:1'}}]",
        "[{name: m, mountPath: /m}, {name: m, mountPath: /part, subPath: etc/image}]",
    );
    instance.write("model.yaml", &text);
    let view = instance.ready("model");
    assert_eq!(instance.exec("model", "cat /m/etc/image /part"), "test/model:1\ntest/model:1");
    assert_eq!(instance.exec("model", "touch /m/x 2>/dev/null || echo refused"), "refused");
    assert_eq!(instance.exec("model", "/m/bin/true 2>/dev/null || echo refused"), "refused");
    instance.kill_podling();
    instance.start_podling();
    assert_eq!(instance.ready("model").id("main"), view.id("main"));
    let absent =
        mounting("absent", "[{name: m, image: {reference: 'test/none:1', pullPolicy: Never}}]", "[]");
    instance.write("absent.yaml", &absent);
    instance.until_pod("absent", "waits for the image", |p| p.waiting("main") == "ErrImageNeverPull");
}

#[test]
fn annotations_set_limits_shared_memory_and_the_time_zone() {
    let instance = Instance::start();
    // Nobody without CAP_SYS_RESOURCE may ask for more than the tests themselves were started with.
    let own = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let hard = own.min(4096);
    let ulimits = format!("podling.dev/ulimits: nofile=500:{hard},core=0");
    let text = annotated(
        &shell("tuned", SLEEP, ""),
        &[
            &ulimits,
            "podling.dev/shm-size: 3Mi",
            "podling.dev/timezone: Asia/Tokyo",
            "podling.dev/oom-group: \"false\"",
        ],
    );
    instance.write("tuned.yaml", &text);
    instance.ready("tuned");
    // Of the pod's own process: an exec may get the hard limit for both, by a race in runc up to 1.1.12.
    let limits = instance.exec("tuned", "grep -e 'open files' -e 'core file' /proc/1/limits");
    let limits: Vec<_> = limits.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(limits, ["Max core file size 0 0 bytes".into(), format!("Max open files 500 {hard} files")]);
    assert_eq!(instance.exec("tuned", "df -k /dev/shm | tail -1 | awk '{print $2}'"), "3072");
    assert_eq!(instance.exec("tuned", "date -d @0 +%H%Z"), "09JST");
    if host::unified() {
        assert_eq!(instance.exec("tuned", "cat /sys/fs/cgroup/memory.oom.group"), "0");
    }
    let wish = format!("podling.dev/ulimits: nofile={}", own.saturating_add(1));
    instance.write("greedy.yaml", &annotated(&shell("greedy", SLEEP, ""), &[&wish]));
    // With CAP_SYS_RESOURCE it may be had.
    instance.until_pod("greedy", "runs or says why not", |p| {
        let said = p.waiting_message("main");
        p.is_ready() || said.contains("hard limit") || said.contains("fs.nr_open")
    });
}

#[test]
fn what_the_host_does_not_have_is_said_and_holds_up_nobody_else() {
    let instance = Instance::start();
    let volumes = "[{name: v, nfs: {server: nas.invalid, path: /srv}}]";
    instance.write("nfs.yaml", &mounting("nfs", volumes, "[{name: v, mountPath: /v}]"));
    let volumes = "[{name: v, emptyDir: {medium: HugePages-3Mi}}]";
    instance.write("huge.yaml", &mounting("huge", volumes, "[{name: v, mountPath: /v}]"));
    instance.write("plain.yaml", &shell("plain", SLEEP, ""));
    instance.ready("plain");
    for (pod, text) in [("nfs", "cannot mount nas.invalid:/srv: "), ("huge", "no huge pages of 3Mi")] {
        instance.until(text, |i| i.pod(pod)?.waiting_message("main").contains(text).then_some(()));
    }
}

#[test]
fn an_ephemeral_claim_is_scratch_space_that_goes_with_the_pod() {
    let instance = Instance::start();
    let claim = "{volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}";
    let text =
        mounting("scratch", &format!("[{{name: v, ephemeral: {claim}}}]"), "[{name: v, mountPath: /v}]");
    instance.write("scratch.yaml", &text);
    instance.ready("scratch");
    assert_eq!(instance.exec("scratch", "touch /v/f; ls /v"), "f");
    assert!(instance.describes("scratch", "its size is not limited"));
    assert!(
        fs::metadata(instance.root().join("var/lib/podling/claims"))
            .is_err_and(|e| e.raw_os_error() == Some(2))
    );
}

#[test]
fn an_images_volume_begins_with_what_the_image_has_there_at_each_run() {
    let image = Image::shell("test/shell:1")
        .with("Volumes", json!({"/data": {}, "/none": {}, "/over": {}}))
        .program("data/seed", "from the image")
        .program("over/seed", "hidden");
    let instance = Instance::with(Options { images: vec![image], ..Options::default() });
    let text = mounting("seeded", "[{name: v}]", "[{name: v, mountPath: /over/}]");
    instance.write("seeded.yaml", &text);
    let first = instance.ready("seeded");
    let look = "cat /data/seed; ls /none /over; stat -c %a /data/seed; grep -c ' /data ' /proc/mounts";
    let expected = "from the image/none:\n\n/over:\n755\n1";
    assert_eq!(instance.exec("seeded", look), expected);
    // A run has its own: what the one before wrote is gone, in the container and on the host.
    instance.exec("seeded", "echo x > /data/seed");
    // The kill may end the exec too, before it has said so.
    instance.podling(&["exec", "seeded", "--", "kill", "1"]);
    instance.until_pod("seeded", "another run", |p| p.is_ready() && p.id("main") != first.id("main"));
    assert_eq!(instance.exec("seeded", look), expected);
    let volumes = instance.root().join("var/lib/podling/pods").join(first.uid()).join("image-volumes/main");
    assert_eq!(fs::read_dir(volumes).expect("there are some").count(), 2);
}
