#!/bin/sh
# Builds the Debian packages pesc, libpesc0 and libpesc-dev from the committed tree, checks them with lintian, unpacks them in a
# fresh prefix, and there runs the command and compiles and runs the programs of examples/ and docs/api.
#   tools/deb.sh OUT
set -eu
cd "$(dirname "$0")/.."
out=$(realpath -m "$1")
tools/deps.sh build test deb
version=$(sed -n 's/^#define PESC_VERSION "\(.*\)"/\1/p' include/pesc/pesc.h)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" "$work/pesc"
git archive HEAD | tar -x -C "$work/pesc"
cp -r packaging/debian "$work/pesc/debian"
cat >"$work/pesc/debian/changelog" <<EOF
pesc ($version) unstable; urgency=medium

  * Release $version; CHANGELOG.md has the changes.

 -- pesc maintainers <$(sed -n 's/^Maintainer:.*<\(.*\)>/\1/p' packaging/debian/control)>  $(LC_ALL=C git log -1 --format=%cD)
EOF
(cd "$work/pesc" && dpkg-buildpackage -us -uc -b >"$out/build.log" 2>&1) || { tail -n 20 "$out/build.log" >&2; exit 1; }
cp "$work"/*.deb "$out"
lintian --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs "$work"/*.changes

# a fresh prefix: what the packages hold works where it was unpacked
architecture=$(dpkg --print-architecture)
for package in pesc libpesc0 libpesc-dev; do dpkg-deb -x "$out/${package}_${version}_$architecture.deb" "$work/root"; done
"$work/root/usr/bin/pesc" doctor >/dev/null
PESC_SHARE="$work/root/usr/share/pesc" "$work/root/usr/bin/pesc" info "$work/root/usr/share/pesc/base" >/dev/null
bash -n "$work/root/usr/share/bash-completion/completions/pesc"
zcat "$work/root/usr/share/man/man1/pesc.1.gz" | groff -man -Tutf8 -ww >/dev/null
tests/examples.sh "$work/root/usr" "$work/root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)" >"$out/examples.log" 2>&1 ||
    { tail -n 20 "$out/examples.log" >&2; exit 1; }
ls "$out"/*.deb
