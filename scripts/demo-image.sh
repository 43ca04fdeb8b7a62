#!/bin/sh
# Makes the demonstration image as an OCI archive, offline, from this machine's static busybox.
#
#   scripts/demo-image.sh OUT.tar [NAME:TAG]
#
# One layer: /bin/busybox with its applets as links, a passwd and group file, and a web page. All times are
# zero and all owners root, so the same busybox always gives the same digests.
set -eu

out=${1:?usage: demo-image.sh OUT.tar [NAME:TAG]}
name=${2:-localhost/podling-demo:1}
busybox=$(command -v busybox) || {
    echo "demo-image: busybox is not installed; run: make deps" >&2
    exit 1
}
if ldd "$busybox" 2>/dev/null | grep -q "=>"; then
    echo "demo-image: $busybox needs shared libraries, the image needs the static one; run: make deps" >&2
    exit 1
fi
case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
armv7l) arch=arm ;;
*) arch=$(uname -m) ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
blobs=$work/image/blobs/sha256
umask 022
mkdir -p "$root/bin" "$root/etc" "$root/tmp" "$root/root" "$root/www" "$root/dev" "$root/proc" "$root/sys" "$blobs"
chmod 1777 "$root/tmp"
cp "$busybox" "$root/bin/busybox"
chmod 755 "$root/bin/busybox"
for applet in $("$busybox" --list); do
    [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
done
printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n' >"$root/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
cat >"$root/www/index.html" <<'PAGE'
<!doctype html>
<title>podling</title>
<h1>It runs</h1>
<p>This page is served by busybox httpd in a pod that podling started from a file in a directory.</p>
PAGE

pack() { # directory, archive
    tar --create --file "$2" --directory "$1" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner \
        --format=ustar .
}
blob() { # file: moves it among the blobs, prints its digest and size
    digest=$(sha256sum "$1" | cut -d' ' -f1)
    size=$(wc -c <"$1" | tr -d ' ')
    mv "$1" "$blobs/$digest"
    echo "$digest $size"
}

pack "$root" "$work/layer"
# shellcheck disable=SC2046 # two words
set -- $(blob "$work/layer")
layer=$1 layer_size=$2
printf '{"architecture":"%s","os":"linux","created":"1970-01-01T00:00:00Z","config":{"Env":["PATH=/bin"],"Cmd":["/bin/sh"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
    "$arch" "$layer" >"$work/config"
# shellcheck disable=SC2046
set -- $(blob "$work/config")
config=$1 config_size=$2
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:%s","size":%s},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"sha256:%s","size":%s}]}' \
    "$config" "$config_size" "$layer" "$layer_size" >"$work/manifest"
# shellcheck disable=SC2046
set -- $(blob "$work/manifest")
printf '{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:%s","size":%s,"annotations":{"io.containerd.image.name":"%s","org.opencontainers.image.ref.name":"%s"}}]}' \
    "$1" "$2" "$name" "${name##*:}" >"$work/image/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' >"$work/image/oci-layout"

# Renamed in, so that a directory watcher never sees half an archive.
mkdir -p "$(dirname "$out")"
pack "$work/image" "$out.tmp"
mv "$out.tmp" "$out"
