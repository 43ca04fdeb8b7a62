#!/bin/sh
# Undoes `make run`: stops its pods with their grace, then podling, its private containerd where it
# started one, and removes the directory that held it all.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
demo=${DEMO:-$here/target/demo}
podling=${PODLING:-$here/target/release/podling}
namespace=podling-demo

if [ ! -d "$demo" ]; then
    echo "stop: nothing to stop, $demo does not exist"
    exit 0
fi
if [ "$(id -u)" != 0 ]; then
    echo "stop: only root may stop what root started; run: sudo make stop" >&2
    exit 1
fi
ctl() {
    "$podling" --root "$demo" "$@"
}
if ctl get pods >/dev/null 2>&1; then
    echo "stop: podling is still running on $demo; end it first (Ctrl-C in its terminal)" >&2
    exit 1
fi

# A manifest directory without pods is the order to remove every pod; podling knows them from its own records. It
# must not be empty: that could be a file system that is not mounted, which podling takes as no order at all.
none=$demo/etc/none
mkdir -p "$none"
echo '# no pods' >"$none/none.yaml"
"$podling" --root "$demo" run --manifest-dir "$none" --namespace "$namespace" >>"$demo/podling.log" 2>&1 &
daemon=$!
# Its records are the truth about what is left: the list of pods is empty also before it has read them.
gone() {
    ctl get pods -o name >"$demo/left" 2>/dev/null && [ ! -s "$demo/left" ] &&
        [ -z "$(ls -A "$demo/var/lib/podling/pods" 2>/dev/null)" ]
}
tries=0
until gone; do
    tries=$((tries + 1))
    if [ "$tries" -gt 600 ] || ! kill -0 "$daemon" 2>/dev/null; then
        tail -n 20 "$demo/podling.log" >&2
        echo "stop: pods are left, see above; nothing was removed, run make stop again" >&2
        kill "$daemon" 2>/dev/null || true
        exit 1
    fi
    sleep 0.1
done
kill "$daemon"
wait "$daemon" 2>/dev/null || true

# The private containerd is found by its configuration's path, which lies under $demo.
for proc in /proc/[0-9]*; do
    args=$({ tr '\0' ' ' <"$proc/cmdline"; } 2>/dev/null) || continue
    case $args in
    *containerd*"$demo"/*) kill "${proc#/proc/}" 2>/dev/null || true ;;
    esac
done
sleep 0.5
# Its socket lies elsewhere when the path of $demo is too long for one.
config=$demo/run/podling/containerd/config.toml
if [ -e "$config" ]; then
    socket=$(sed -n 's/^ *address = "\(.*containerd.sock\)"$/\1/p' "$config" | head -n 1)
    case $socket in /run/podling-*) rm -rf "$(dirname "$socket")" ;; esac
fi
awk -v under="$demo/" 'index($5, under) == 1 { print $5 }' /proc/self/mountinfo | sort -r | while read -r mount; do
    umount -l "$mount"
done
# With the system's containerd the image stays in its namespace, which only then can be dropped.
if [ -S /run/containerd/containerd.sock ] && command -v ctr >/dev/null; then
    ctr -n "$namespace" images ls -q 2>/dev/null | xargs -r ctr -n "$namespace" images rm >/dev/null 2>&1 || true
    ctr namespaces rm "$namespace" >/dev/null 2>&1 || true
fi
# containerd leaves runc's directory of the namespace behind.
rm -rf "$demo" "/run/containerd/runc/$namespace"
echo "stop: all pods of make run are stopped and removed"
