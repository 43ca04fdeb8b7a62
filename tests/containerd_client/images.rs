use super::*;

#[tokio::test]
async fn archives_of_every_kind_become_the_same_unpacked_image() {
    let server = TestContainerd::start().await;
    let client = server.client().await;
    let image = TestImage::busybox();
    let archives = [
        ("oci.tar", "oci:1", image.oci_archive("oci:1", Compression::None)),
        ("oci.tar.gz", "oci:2", compress(&image.oci_archive("oci:2", Compression::Gzip), Compression::Gzip)),
        // The name lies about the compression.
        ("z.tar", "oci:3", compress(&image.oci_archive("oci:3", Compression::Zstd), Compression::Zstd)),
        ("docker.tar", "team/app:4", image.docker_archive(&["team/app:4"])),
        ("d.tar.zst", "app:5", compress(&image.docker_archive(&["app:5"]), Compression::Zstd)),
    ];
    let mut chains = Vec::new();
    for (file, name, data) in archives {
        let path = server.path().join(file);
        fs::write(&path, data).unwrap();
        let reference = ImageRef::parse(name).unwrap();
        let names = import_path(&client, &path, None).await.unwrap();
        assert_eq!(names, [reference.name()], "{file}");
        let image = client.image(&reference).await.unwrap().unwrap();
        assert!(image.unpacked, "{file}");
        assert_eq!(image.config.config().clone().unwrap().cmd().clone().unwrap(), ["sh"]);
        chains.push(image.chain_id);
    }
    chains.dedup();
    assert_eq!(chains.len(), 1);
    let list = client.images().await.unwrap();
    assert_eq!(list.len(), 5);
    assert!(list.iter().all(|i| i.size.unwrap() > 500_000 && i.created.is_some()), "{list:?}");
    assert_eq!(ctr(&server, &["leases", "ls", "-q"]).await.trim(), "");
    // All that the images need is held by them: a collection takes nothing.
    let before = ctr(&server, &["content", "ls", "-q"]).await;
    let held = client.remove_image(&ImageRef::parse("oci:2").unwrap()).await.unwrap();
    assert!(held && !client.remove_image(&ImageRef::parse("oci:2").unwrap()).await.unwrap());
    let after = ctr(&server, &["content", "ls", "-q"]).await;
    assert!(after.lines().count() < before.lines().count());
    for name in ["oci:1", "oci:3", "team/app:4", "app:5"] {
        let image = client.local_image(name).await.unwrap();
        assert!(image.unpacked, "{name}");
        // Unpacked from its own blobs too, once the layers are gone.
        assert!(client.rootfs_mounts("none").await.unwrap().is_none());
    }
    for name in ["oci:1", "oci:3", "team/app:4", "app:5"] {
        client.remove_image(&ImageRef::parse(name).unwrap()).await.unwrap();
    }
    assert_eq!(ctr(&server, &["content", "ls", "-q"]).await.trim(), "");
    assert_eq!(ctr(&server, &["snapshots", "ls"]).await.lines().count(), 1);
}

#[tokio::test]
async fn an_image_that_lost_its_layers_is_unpacked_again_by_two_at_once() {
    let server = TestContainerd::start().await;
    let client = server.client().await;
    import_busybox(&server, &client).await;
    let reference = ImageRef::parse(IMAGE).unwrap();
    let image = client.image(&reference).await.unwrap().unwrap();
    ctr(&server, &["snapshots", "rm", &image.chain_id]).await;
    let image = client.image(&reference).await.unwrap().unwrap();
    assert!(!image.unpacked);
    let (one, two) = tokio::join!(client.ensure_unpacked(&image), client.ensure_unpacked(&image));
    one.unwrap();
    two.unwrap();
    assert!(client.image(&reference).await.unwrap().unwrap().unpacked);
}

#[tokio::test]
async fn names_come_from_annotations_or_from_the_file() {
    let server = TestContainerd::start().await;
    let client = server.client().await;
    let image = TestImage::busybox();
    let cases = [
        ("web.tar", json!({}), "docker.io/library/web:latest"),
        (
            "Web-App.oci.tar.gz",
            json!({"org.opencontainers.image.ref.name": "v2"}),
            "docker.io/library/web-app:v2",
        ),
        ("x.tar", json!({"org.opencontainers.image.ref.name": "quay.io/a/b:3"}), "quay.io/a/b:3"),
    ];
    for (file, annotations, name) in cases {
        let path = server.path().join(file);
        fs::write(&path, tar_of(&image.oci_files(Compression::None, annotations))).unwrap();
        assert_eq!(import_path(&client, &path, None).await.unwrap(), [name]);
    }
    let dir = server.path().join("layout");
    for (path, data) in image.oci_files(Compression::Gzip, json!({"org.opencontainers.image.ref.name": "9"}))
    {
        fs::create_dir_all(dir.join(&path).parent().unwrap()).unwrap();
        fs::write(dir.join(path), data).unwrap();
    }
    assert_eq!(import_path(&client, &dir, None).await.unwrap(), ["docker.io/library/layout:9"]);
    // By digest, found under its tag.
    let tagged = client.image(&ImageRef::parse("layout:9").unwrap()).await.unwrap().unwrap();
    let by_digest = ImageRef::parse(&format!("layout@{}", tagged.digest)).unwrap();
    assert_eq!(client.image(&by_digest).await.unwrap().unwrap().name, "docker.io/library/layout:9");
}

#[tokio::test]
async fn several_images_and_builds_in_one_archive() {
    let server = TestContainerd::start().await;
    let client = server.client().await;
    let image = TestImage::busybox();
    let other = TestImage { architecture: "s390x".into(), ..TestImage::busybox() };
    let two = server.path().join("two.tar");
    fs::write(&two, image.docker_archive(&["one:1", "two:2"])).unwrap();
    let names = import_path(&client, &two, None).await.unwrap();
    assert_eq!(names, ["docker.io/library/one:1", "docker.io/library/two:2"]);
    // An index of two builds, the foreign one first and without its blobs.
    let mut files = image.oci_files(Compression::None, json!({}));
    let host = serde_json::from_slice::<serde_json::Value>(&files[1].1).unwrap()["manifests"][0].clone();
    let foreign = other.oci_files(Compression::None, json!({}));
    let foreign = serde_json::from_slice::<serde_json::Value>(&foreign[1].1).unwrap()["manifests"][0].clone();
    let with = |mut d: serde_json::Value, arch: &str| {
        d["platform"] = json!({"os": "linux", "architecture": arch});
        d
    };
    let index = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
                       "manifests": [with(foreign, "s390x"), with(host, &image.architecture)]});
    let index = serde_json::to_vec(&index).unwrap();
    let top = json!({"schemaVersion": 2, "manifests": [{
        "mediaType": "application/vnd.oci.image.index.v1+json", "digest": containerd::digest(&index),
        "size": index.len(), "annotations": {"io.containerd.image.name": "docker.io/library/multi:1"}}]});
    files[1].1 = serde_json::to_vec(&top).unwrap();
    files.push((format!("blobs/{}", containerd::digest(&index).replace(':', "/")), index.clone()));
    let multi = server.path().join("multi.tar");
    fs::write(&multi, tar_of(&files)).unwrap();
    import_path(&client, &multi, None).await.unwrap();
    let found = client.image(&ImageRef::parse("multi:1").unwrap()).await.unwrap().unwrap();
    assert_eq!(found.digest, containerd::digest(&index));
    assert!(found.unpacked);
}

#[tokio::test]
async fn a_bad_archive_says_what_is_wrong_and_leaves_nothing() {
    let server = TestContainerd::start().await;
    let client = server.client().await;
    // Each of its own content: a right blob that a failed import left until the next collection would do
    // for the next import.
    let image = |case: &str| TestImage {
        layers: vec![tar_of(&[(case.to_owned(), case.repeat(8000).into_bytes())])],
        ..TestImage::busybox()
    };
    let files = |case: &str| image(case).oci_files(Compression::None, json!({}));
    let write = |name: &str, data: &[u8]| {
        let path = server.path().join(name);
        fs::write(&path, data).unwrap();
        path
    };
    let whole = image("cut").oci_archive(IMAGE, Compression::None);
    let mut flipped = files("flipped");
    flipped.last_mut().unwrap().1[0] ^= 1;
    let mut lacking = files("lacking");
    let longest = (0..lacking.len()).max_by_key(|i| lacking[*i].1.len()).unwrap();
    lacking.remove(longest);
    let foreign = TestImage { architecture: "s390x".into(), ..image("foreign") };
    let mut lying = image("lying").docker_archive(&["x:1"]);
    let at = lying.windows(10).position(|w| w == b"lyinglying").unwrap();
    lying[at] = b'L';
    let cases = [
        (write("lacking.tar", &tar_of(&lacking)), "is missing; copy or export it again"),
        (write("cut.tar", &whole[..whole.len() / 2]), "cut.tar is damaged: "),
        (write("flipped.tar", &tar_of(&flipped)), "does not have the digest that its name says"),
        (write("text.tar", b"just text"), "text.tar is not an image archive: it has neither"),
        (write("empty.tar", b""), "empty.tar is damaged: it is empty"),
        (write("other.tar", &tar_of(&[("a.txt".into(), vec![1])])), "is not an image archive"),
        (write("gz.tar.gz", &[0x1f, 0x8b, 8, 0, 1, 2]), "gz.tar.gz is"),
        (
            write("s390x.tar", &foreign.docker_archive(&["x:1"])),
            "has no build of docker.io/library/x:1 for linux/",
        ),
        (write("BAD NAME!.tar", &tar_of(&files("bad"))), "rename the file, or import it with --name"),
        (
            write("lying.tar", &lying),
            "its content is not what the configuration of docker.io/library/x:1 says",
        ),
        (server.path().join("none.tar"), "cannot read "),
    ];
    for (path, want) in cases {
        let e = import_path(&client, &path, None).await.unwrap_err();
        assert!(e.to_string().contains(want), "{e}");
        assert!(!e.to_string().contains('\n'), "{e}");
    }
    assert!(client.images().await.unwrap().is_empty());
    assert_eq!(ctr(&server, &["leases", "ls", "-q"]).await.trim(), "");
}

#[tokio::test]
async fn a_missing_image_names_the_namespace_and_what_else_there_is() {
    let server = TestContainerd::start().await;
    let client = server.client().await;
    import_busybox(&server, &client).await;
    let e = client.local_image("busybox:nope").await.unwrap_err();
    assert_eq!(e.reason(), "ErrImageNeverPull");
    assert_eq!(
        e.to_string(),
        format!(
            "image \"docker.io/library/busybox:nope\" is not in containerd namespace \"{}\" and its imagePullPolicy \
             is Never: import it with `podling image import FILE` (of this repository there is {IMAGE})",
            server.namespace()
        )
    );
    let e = client.local_image("NO").await.unwrap_err();
    assert_eq!(e.reason(), "InvalidImageName");
}
