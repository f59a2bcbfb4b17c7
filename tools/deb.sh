#!/bin/sh
# Builds the Debian packages pesc, libpesc0 and libpesc-dev from the committed tree, checks them with lintian, and runs the
# command from a fresh prefix.
#   tools/deb.sh OUT
set -eu
cd "$(dirname "$0")/.."
out=$(realpath -m "$1")
tools/deps.sh build deb
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
lintian --fail-on error --suppress-tags initial-upload-closes-no-bugs "$work"/*.changes

# a fresh prefix: what the package holds runs where it was unpacked
dpkg-deb -x "$out/pesc_${version}_amd64.deb" "$work/root"
"$work/root/usr/bin/pesc" doctor >/dev/null
PESC_SHARE="$work/root/usr/share/pesc" "$work/root/usr/bin/pesc" info "$work/root/usr/share/pesc/base" >/dev/null
bash -n "$work/root/usr/share/bash-completion/completions/pesc"
ls "$out"/*.deb
