#!/bin/sh
# The Python module, installed by pip from the tree, over an installed copy of the library. Part of install.sh.
#   tests/python.sh PREFIX
# PYTHON chooses the interpreter; by default the system's own, for which Debian's python3-numpy is.
set -eu
prefix=$1
python=${PYTHON:-$([ -x /usr/bin/python3 ] && echo /usr/bin/python3 || echo python3)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp -r python "$work/tree" # setuptools writes into the tree that it builds
if "$python" -c 'import setuptools, wheel, pip' 2>/dev/null; then
    "$python" -m pip install -q --no-build-isolation --no-deps --no-index --target "$work/site" "$work/tree" >"$work/log" 2>&1 ||
        { cat "$work/log"; exit 1; }
    [ -e "$work/site/pesc/__init__.py" ]
    echo "ok pip installs the Python module from the tree"
else
    echo "SKIPPED: pip install ./python: $python has no pip, setuptools or wheel; the module is used from the tree"
    mv "$work/tree" "$work/site"
fi
export PYTHONPATH="$work/site" PYTHONDONTWRITEBYTECODE=1

version='import pesc; print(pesc.library_version())'
LD_LIBRARY_PATH="$prefix/lib" "$python" -c "$version" >/dev/null
echo "ok the Python module finds the installed library"
PESC_LIB="$prefix/lib/libpesc.so.0" "$python" -c "$version" >/dev/null
if PESC_LIB="$work/none.so" LD_LIBRARY_PATH="$prefix/lib" "$python" -c "$version" 2>/dev/null; then
    echo "PESC_LIB does not come before the installed library"
    exit 1
fi
echo "ok the Python module uses the library that PESC_LIB names"

for file in test_pesc test_tasks; do
    rc=0
    PESC_PREFIX="$prefix" LD_LIBRARY_PATH="$prefix/lib" "$python" "tests/python/$file.py" -v >"$work/log" 2>&1 || rc=$?
    sed -n 's/^\(test_[a-z_]*\) .*\.\.\. ok$/ok python: \1/p; s/^\(test_[a-z_]*\) .*\.\.\. skipped \(.*\)/SKIPPED: python: \1: \2/p' "$work/log"
    [ "$rc" = 0 ] || { cat "$work/log"; exit "$rc"; }
done
