#!/bin/sh
# Installs what podling needs to build, run and test itself on Debian or Ubuntu: only what is missing.
#
#   scripts/deps.sh            everything (build, run, tests)
#   scripts/deps.sh --list     only print the packages that are missing
#
# Each need is looked up by what it provides (a command, a file), not by package name: a machine that has
# Docker's containerd.io or plugins in /opt/cni/bin needs no second copy, and apt would remove the first.
set -eu

missing=""
need() { # package, then a test that succeeds when it is there
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}
has() {
    PATH="$PATH:/usr/sbin:/sbin:/usr/local/sbin" command -v "$1"
}
static_busybox() {
    # The demonstration image and the test images hold nothing but this one file, so it must not need
    # libraries: Debian's package "busybox" does, "busybox-static" does not.
    path=$(has busybox) && ! ldd "$path" 2>/dev/null | grep -q "=>"
}
cni_plugins() {
    test -x /opt/cni/bin/bridge || test -x /usr/lib/cni/bridge
}

need containerd has containerd
need runc has runc
need crun has crun
need containernetworking-plugins cni_plugins
need iptables has iptables
need iproute2 has ip
need util-linux has nsenter
need busybox-static static_busybox
need protobuf-compiler has protoc
# protoc's own well-known types, only recommended by the package above.
need libprotobuf-dev test -e /usr/include/google/protobuf/any.proto
need gcc has cc
need libc6-dev test -e /usr/include/stdio.h
# The test of a control plane runs a real etcd, and programs that speak TLS as its other members.
need etcd-server has etcd
# A registry for the tests of pulling, what pushes to it, and its passwords and certificates.
need docker-registry has docker-registry
need skopeo has skopeo
need apache2-utils has htpasswd
need openssl has openssl
# Loads the profile of containers into a kernel that has AppArmor on.
if grep -qs Y /sys/module/apparmor/parameters/enabled; then
    need apparmor has apparmor_parser
fi
# The test of a container's time zone.
need tzdata test -e /usr/share/zoneinfo/Asia/Tokyo
need ca-certificates test -e /etc/ssl/certs/ca-certificates.crt

if [ "${1:-}" = --list ]; then
    echo "${missing# }"
    exit 0
fi

if ! has cargo >/dev/null; then
    echo "deps: cargo is not installed; podling needs Rust 1.90 or newer, which https://rustup.rs installs" >&2
    exit 1
fi
[ -n "$missing" ] || exit 0

if ! has apt-get >/dev/null; then
    echo "deps: this machine has no apt-get; install what these Debian packages hold:$missing" >&2
    exit 1
fi
if [ "$(id -u)" != 0 ]; then
    echo "deps: packages are missing and only root can install them; run: sudo apt-get install$missing" >&2
    exit 1
fi
echo "deps: installing$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
# shellcheck disable=SC2086 # a list of names
apt-get install -q -y --no-install-recommends $missing
