#!/bin/sh
# Installs the Debian packages that pesc needs and this machine lacks.
#   tools/deps.sh build          what compiling needs
#   tools/deps.sh build test     and what the tests, checks and fuzzers need
#   tools/deps.sh --print build  names them instead
set -eu

build="gcc make pkg-config libc6-dev libjansson-dev libyaml-dev libpcre2-dev libutf8proc-dev
libxxhash-dev libssl-dev libedit-dev zlib1g-dev liblzma-dev libzstd-dev liblz4-dev libsnappy-dev libcairo2-dev libcurl4-openssl-dev"
test="g++ libcmocka-dev bats clang clang-format libclang-rt-14-dev python3 python3-numpy python3-pip strace openmpi-bin binutils xz-utils curl groff-base
man-db procps git"
deb="dpkg-dev debhelper lintian fakeroot"
wheel="patchelf binutils python3"
arm="gcc-aarch64-linux-gnu qemu-user"

packages="" print=""
for group in "$@"; do
    case $group in
    build) packages="$packages $build" ;;
    test) packages="$packages $test" ;;
    deb) packages="$packages $deb" ;;
    wheel) packages="$packages $wheel" ;;
    arm) packages="$packages $arm" ;;
    --print) print=yes ;;
    *) echo "deps: '$group' is not a group; give build, test, deb, wheel or arm" >&2; exit 2 ;;
    esac
done
[ -z "$print" ] || { echo $packages; exit 0; }

command -v dpkg-query >/dev/null 2>&1 || exit 0 # not a Debian: the compiler will say what is missing
missing=""
for p in $packages; do
    state=$(dpkg-query -W -f='${db:Status-Abbrev}' "$p" 2>/dev/null || true)
    case $state in
    ii*) ;;
    *) missing="$missing $p" ;;
    esac
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root="sudo"
else
    echo "deps: these Debian packages are missing and this user may not install them:$missing;" \
         "run as root: apt-get install$missing" >&2
    exit 4
fi
echo "installing:$missing" >&2
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq >&2
# shellcheck disable=SC2086
$as_root apt-get install -y -qq --no-install-recommends $missing >&2
