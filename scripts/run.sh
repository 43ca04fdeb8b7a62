#!/bin/sh
# The demonstration behind `make run`: podling on the example manifests, in the foreground.
#
# Everything it makes lies under one directory ($DEMO, podling's --root) and in one containerd namespace,
# so it disturbs no other podling on the machine and `make stop` can take all of it away again.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
demo=${DEMO:-$here/target/demo}
podling=${PODLING:-$here/target/release/podling}
manifests=$here/manifests
namespace=podling-demo
log=$demo/podling.log

if [ "$(id -u)" != 0 ]; then
    echo "run: podling makes namespaces, mounts and cgroups, which only root may; run: sudo make run" >&2
    exit 1
fi
ctl() {
    "$podling" --root "$demo" "$@"
}
say() {
    printf '\n\033[1m%s\033[0m\n' "$*"
}

umask 022
mkdir -p "$demo/var/lib/podling/images"
"$here/scripts/demo-image.sh" "$demo/var/lib/podling/images/demo.tar" localhost/podling-demo:1

"$podling" --root "$demo" run --manifest-dir "$manifests" --namespace "$namespace" >"$log" 2>&1 &
daemon=$!
logger=
farewell() {
    trap '' INT TERM
    kill "$daemon" 2>/dev/null || true
    wait "$daemon" 2>/dev/null || true
    [ -z "$logger" ] || kill "$logger" 2>/dev/null || true
    say "podling has stopped; its pods go on running without it."
    cat <<TEXT
  see them      ctr -n $namespace tasks ls   (with the system's containerd), or: ps
  manage again  make run      (finds them as they are, no restart)
  stop them     make stop     (stops and removes the pods and everything make run made)
TEXT
    exit 0
}
trap farewell INT TERM

# The daemon must stay up, and each manifest must show a pod that is ready or done.
expected=$(find "$manifests" -name '*.yaml' | wc -l)
settled() {
    ctl get pods 2>/dev/null | awk -v want="$expected" '
        NR > 1 { split($2, r, "/"); if (r[1] == r[2] || $3 == "Completed") good++ }
        END { exit good < want }'
}
say "Starting podling on $manifests (log: $log)"
tries=0
until settled; do
    if ! kill -0 "$daemon" 2>/dev/null; then
        tail -n 30 "$log" >&2
        echo "run: podling ended before its pods were ready; its last lines are above" >&2
        exit 1
    fi
    tries=$((tries + 1))
    if [ "$tries" -gt 600 ]; then
        ctl get pods >&2 || true
        tail -n 30 "$log" >&2
        echo "run: the pods were not ready after 60 s; podling is stopped, what it started can be removed with: make stop" >&2
        kill "$daemon"
        exit 1
    fi
    sleep 0.1
done

say "podling get pods -o wide"
ctl get pods -o wide
say "A line of each pod's log"
for pod in $(ctl get pods -o name); do
    printf '%-14s %s\n' "${pod#pod/}" "$(ctl logs "${pod#pod/}" --all-containers --tail 1 2>&1 | tail -n 1)"
done
say "http://127.0.0.1:8080/, served by the pod web"
timeout 5 busybox wget -q -O - http://127.0.0.1:8080/ ||
    echo "run: nothing answered on port 8080; see: $podling --root $demo describe pod web" >&2

say "Running. Ctrl-C stops podling, not the pods. Meanwhile, from another terminal:"
cat <<TEXT
  $podling --root $demo get pods -w
  $podling --root $demo logs -f ticker
  $podling --root $demo exec -it web -- sh
  edit, add or remove a file in $manifests

TEXT
tail -n +1 -f "$log" &
logger=$!
status=0
wait "$daemon" || status=$?
# It ends well when something else sent it the signal.
[ "$status" != 0 ] || farewell
kill "$logger" 2>/dev/null || true
echo "run: podling ended by itself with status $status" >&2
exit "$status"
