#!/bin/sh
# Installs a program or a shared library without its debug symbols. These go to DEBUG/.build-id, where gdb looks for them by
# the build ID that both files carry; DEBUG "": they stay in the file.
#   tools/install_stripped.sh FILE TARGET DEBUG
set -eu
install -D -m 755 "$1" "$2"
[ -n "$3" ] || exit 0
id=$(readelf -n "$1" | sed -n 's/.*Build ID: //p')
[ -n "$id" ] || { echo "install: $1 has no build ID; link it with -Wl,--build-id" >&2; exit 1; }
symbols=$3/.build-id/$(echo "$id" | cut -c 1-2)/$(echo "$id" | cut -c 3-).debug
mkdir -p "${symbols%/*}"
objcopy --only-keep-debug "$1" "$symbols"
chmod 644 "$symbols"
strip --strip-unneeded "$2"
