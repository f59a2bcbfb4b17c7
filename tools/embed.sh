#!/bin/sh
# embed.sh HEADER NAME FILE...: prints a C source that holds the files as data, as HEADER declares it:
# NAME[], of rows { name, text, n }, and NAME_n (see src/eval/taskfiles.h and src/serve/api/pagefiles.h).
set -eu
header=$1 name=$2
shift 2
echo "#include \"$header\""
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
printf 'const %s %s[] = {\n%s};\n' "${name%s}" "$name" "$table"
echo "const size_t ${name}_n = $number;"
