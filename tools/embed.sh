#!/bin/sh
# embed.sh NAME FILE...: prints a C source that holds the files as embedded_NAME (see src/base/embed.h).
set -eu
name=$1
shift
echo '#include "base/embed.h"'
number=0
table=""
for file in "$@"; do
    echo "static const unsigned char file$number[] = {"
    od -An -v -tx1 "$file" | sed 's/ \(..\)/0x\1,/g'
    echo "};"
    table="$table    { \"$(basename "$file")\", (const char *)file$number, sizeof file$number },
"
    number=$((number + 1))
done
printf 'static const embedded_file files[] = {\n%s};\n' "$table"
echo "const embedded_files embedded_$name = { files, $number };"
