#!/bin/sh
# What `make install` gives a user: the header's own program compiles, as C and as C++, against the
# installed library, and nothing but pesc_* is exported.
set -eu
BUILD=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

install_to() { # PREFIX; with the build in PATH, as one has it who tries the command before installing
    PATH="$(realpath "$BUILD"):$PATH" make -s BUILD="$BUILD" DESTDIR="$work" PREFIX="$1" install >/dev/null
}
install_to /opt/pesc
install_to /usr
grep -qx 'prefix=/opt/pesc' "$work/opt/pesc/lib/pkgconfig/pesc.pc"
grep -qx 'prefix=/usr' "$work/usr/lib/pkgconfig/pesc.pc"
echo "ok make install, to one prefix and then to another"

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
others=$(nm -D --defined-only "$work/usr/lib/libpesc.so.0" | awk '$3 !~ /^pesc_/ {print $3}')
[ -z "$others" ] || { echo "exported besides pesc_*: $others"; exit 1; }
echo "ok only pesc_* is exported"
