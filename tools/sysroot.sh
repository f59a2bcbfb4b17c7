#!/bin/sh
# Makes a folder of Debian's libraries for another architecture, to build against and to run programs with: the libraries that
# tools/deps.sh names for building, cmocka, and all that they need, unpacked. Nothing is installed on this machine.
#   tools/sysroot.sh ARCHITECTURE DIR      tools/sysroot.sh arm64 build/arm/sysroot
set -eu
architecture=$1 dir=$2
packages="$(tools/deps.sh --print build | tr ' ' '\n' | grep -e '-dev$' | tr '\n' ' ')libcmocka-dev"
[ "$(cat "$dir/packages" 2>/dev/null)" != "$packages" ] || exit 0
command -v apt-get >/dev/null || { echo "sysroot: this machine has no apt-get, which fetches Debian's packages" >&2; exit 4; }

# apt with a state of its own, in which nothing is installed, and the sources of this machine
rm -rf "$dir"
mkdir -p "$dir/apt/lists/partial" "$dir/apt/archives/partial"
state=$(realpath "$dir/apt")
: >"$state/status"
apt() {
    apt-get -qq -o APT::Architecture="$architecture" -o APT::Architectures::="$architecture" -o APT::Sandbox::User= \
        -o Acquire::Languages=none -o Dir::State="$state" -o Dir::State::status="$state/status" -o Dir::Cache="$state" \
        -o Debug::NoLocking=1 "$@"
}
echo "fetching the $architecture libraries to $dir" >&2
apt update
# shellcheck disable=SC2086
apt install -y --no-install-recommends --download-only $packages >&2
for package in "$state"/archives/*.deb; do dpkg-deb -x "$package" "$dir"; done
rm -r "$state"
# links to places of the other machine
find "$dir" -type l -lname '/*' | while read -r link; do
    ln -sfnr "$dir$(readlink "$link")" "$link"
done
echo "$packages" >"$dir/packages"
