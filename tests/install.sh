#!/bin/sh
# What `make install` gives a user: the header's own program compiles, as C and as C++, against the
# installed library, nothing but pesc_* is exported, and the programs of examples/ and docs/api and the
# Python module work.
set -eu
BUILD=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

install_to() { # PREFIX; with the build directory in PATH, as a user has it who tried the command before installing
    PATH="$(realpath "$BUILD"):$PATH" make -s BUILD="$BUILD" DESTDIR="$work" PREFIX="$1" install >/dev/null
}
install_to /opt/pesc
install_to /usr
grep -qx 'prefix=/opt/pesc' "$work/opt/pesc/lib/pkgconfig/pesc.pc"
grep -qx 'prefix=/usr' "$work/usr/lib/pkgconfig/pesc.pc"
echo "ok make install, to one prefix and then to another"

# without debug symbols, which are where gdb finds them
for file in bin/pesc lib/libpesc.so.0; do
    id=$(readelf -n "$work/opt/pesc/$file" | sed -n 's/.*Build ID: \(..\)/\1\//p')
    if readelf -S "$work/opt/pesc/$file" | grep -q debug_info; then
        echo "$file is installed with debug symbols"
        exit 1
    fi
    readelf -S "$work/opt/pesc/lib/debug/.build-id/$id.debug" | grep -q debug_info
done
echo "ok installed programs have no debug symbols; these are beside them"

# the program that opens pesc.h, without its comment marks
sed -n '/^ \*     #include/,/^ \*$/p' include/pesc/pesc.h | sed 's/^ \* \{0,5\}//' >"$work/example.c"
grep -q 'int main' "$work/example.c"
export PKG_CONFIG_PATH="$work/usr/lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$work"
flags="-I$work/usr/include -L$work/usr/lib -lpesc"
# shellcheck disable=SC2086
gcc -std=c17 -Wall -Wextra -Werror "$work/example.c" -o "$work/example" $flags
echo "ok the header's program compiles as C17"
cp "$work/example.c" "$work/example.cc"
# shellcheck disable=SC2086
g++ -std=c++17 -Wall -Wextra -Werror "$work/example.cc" -o "$work/example++" $flags
echo "ok the header's program compiles as C++"
pkg-config --exists pesc
echo "ok pkg-config knows pesc"
rc=0
LD_LIBRARY_PATH="$work/usr/lib" "$work/example" "$work/nothing" 2>"$work/err" || rc=$?
[ "$rc" = 3 ]
grep -q "$work/nothing" "$work/err"
echo "ok the header's program runs and names a missing model"
LD_LIBRARY_PATH="$work/usr/lib" "$work/example" tests/golden/llama >/dev/null 2>"$work/err" || rc=$?
grep -q tokenizer "$work/err"
echo "ok the header's program opens a model"

# The CUDA part is found from the installed library, wherever the program is. A file that is not an
# object shows, without CUDA, that it is the one which is loaded.
cat >"$work/device.c" <<'END'
#include <pesc/pesc.h>
#include <stdio.h>
int main(void)
{
    pesc_doctor_row rows[64];
    size_t n = pesc_doctor(rows, 64);
    for (size_t i = 0; i < n && i < 64; i++)
        printf("%s: %s %s\n", rows[i].name, rows[i].state, rows[i].detail);
    return 0;
}
END
# shellcheck disable=SC2086
gcc -std=c17 -Wall -Wextra -Werror "$work/device.c" -o "$work/device" $flags
cuda_row() { LD_LIBRARY_PATH="$work/usr/lib" "$work/device" | grep '^cuda: '; }
part=$work/usr/lib/pesc/pesc-cuda.so
if [ -e "$part" ]; then
    row=$(cuda_row)
    case $row in
    "cuda: ok "* | *driver* | *GPU*) ;;
    *) echo "an installed CUDA part is not found: $row"; exit 1 ;;
    esac
    echo "ok a program finds the CUDA part of the installed library"
    rm "$part"
fi
cuda_row | grep -q 'found no pesc-cuda.so'
mkdir -p "${part%/*}"
echo "no object" >"$part"
cuda_row | grep -qF "$part cannot be loaded"
rm "$part"
echo "ok a program looks for the CUDA part beside the installed library"

others=$(nm -D --defined-only "$work/usr/lib/libpesc.so.0" | awk '$3 !~ /^pesc_/ {print $3}')
[ -z "$others" ] || { echo "exported besides pesc_*: $others"; exit 1; }
echo "ok only pesc_* is exported"

unset PKG_CONFIG_SYSROOT_DIR
tests/examples.sh "$work/opt/pesc"
tests/python.sh "$work/opt/pesc"
tests/wheel.sh "$BUILD"
