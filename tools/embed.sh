#!/bin/sh
# Prints a C source that holds the given task files as data (see src/eval/taskfiles.h).
set -eu
echo '#include "eval/taskfiles.h"'
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
printf 'const taskfile taskfiles[] = {\n%s};\n' "$table"
echo "const size_t taskfiles_n = $number;"
