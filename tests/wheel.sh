#!/bin/sh
# What `make wheel` writes, as pip installs it into an environment of its own: the command and the module work without anything
# of this tree, the machine's libraries beyond the C library or an environment. Part of install.sh.
#   tests/wheel.sh BUILD
set -eu
BUILD=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
command -v patchelf >/dev/null || { echo "SKIPPED: the wheel: patchelf is not installed"; exit 0; }
python=${PYTHON:-$([ -x /usr/bin/python3 ] && echo /usr/bin/python3 || echo python3)}

make -s BUILD="$BUILD" NVCC= WHEELS="$work/dist" wheel >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
wheel=$(echo "$work"/dist/pesc-*.whl)
[ "$(stat -c %s "$wheel")" -lt 30000000 ]
echo "ok the wheel has less than 30 MB"

# the platform tag names the newest C library that is asked for
unpacked=$work/unpacked
"$python" -m zipfile -e "$wheel" "$unpacked"
find "$unpacked/pesc" -name '*.so*' -o -path '*/bin/pesc' | xargs objdump -T | grep -o 'GLIBC_2\.[0-9]*' | sed 's/.*\.//' | sort -n | tail -n 1 >"$work/glibc"
case $wheel in
*"-py3-none-manylinux_2_$(cat "$work/glibc")_$(uname -m).whl") echo "ok the wheel's tag is that of its C library" ;;
*) echo "$wheel asks for glibc 2.$(cat "$work/glibc")"; exit 1 ;;
esac

if "$python" -m venv "$work/venv" >"$work/log" 2>&1; then
    "$work/venv/bin/python" -m pip install -q --no-deps --no-index "$wheel"
else
    echo "SKIPPED: the wheel in an environment of its own: $python has no venv"
    exit 0
fi
clean() { env -i -C "$work" PATH="$work/venv/bin" "$@"; }
clean pesc version >"$work/out"
grep -qF "$(sed -n 's/^#define PESC_VERSION "\(.*\)"/\1/p' include/pesc/pesc.h)" "$work/out"
site=$(clean python -c 'import pesc, os; print(os.path.dirname(pesc.__file__))')
ldd "$site/bin/pesc" "$site"/lib/*.so* | grep '=>' | grep -vE 'lib(c|m|pthread|dl|rt)\.so' >"$work/libraries"
if grep -vF "=> $site/" "$work/libraries"; then
    echo "these libraries come from the machine"
    exit 1
fi
echo "ok the command of the wheel brings its libraries"
clean python -c 'import pesc, ssl, zlib; print(pesc.library_version())' >/dev/null
clean python -c 'import ssl, zlib, pesc; print(pesc.info("'"$site"'/share/pesc/base").family)' | grep -qx llama
echo "ok the module of the wheel stands beside other libraries of the same name"
clean pesc craft "$site/share/pesc/base" -o sparse --experts 2 --adapter-dim 8 -q
clean pesc train sparse --data "$site/share/pesc/test.jsonl" --template camelidae -o run --steps 2 --batch 2 --seq-len 64 -q
[ -s "$work/run/plots/loss.svg" ]
clean pesc generate run --prompt 'Where does' --max-tokens 4 >/dev/null
echo "ok the command of the wheel crafts, trains and answers with an empty environment"
