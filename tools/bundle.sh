#!/bin/sh
# Completes a bundle: beside DIR/bin/pesc the shared libraries it needs (not the C library's own, which
# belong to the machine) and, when given, the CUDA part, whose cuBLASLt comes with CUDA. Debug symbols are left out.
#   tools/bundle.sh DIR [PESC-CUDA.SO]
set -eu
dir=$1
rm -rf "$dir/lib" # else the program finds its libraries there already
mkdir -p "$dir/lib/pesc"
ldd "$dir/bin/pesc" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' |
    grep -vE '/(libc|libm|libpthread|libdl|librt)\.so' | while read -r lib; do
    cp -L "$lib" "$dir/lib/"
done
[ $# = 1 ] || cp "$2" "$dir/lib/pesc/"
find "$dir" -type f \( -name pesc -o -name '*.so*' \) -exec strip --strip-unneeded {} +
du -sh "$dir"
