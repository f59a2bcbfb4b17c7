#!/bin/sh
# The rules of the tree that can be checked by a program. Prints each violation as file:line and fails at the end.
set -u
cd "$(dirname "$0")/.."
bad=0
complain() { printf '%s\n' "$1" >&2; bad=1; }
sources() {
    git ls-files -co --exclude-standard -- 'src/*.[ch]' 'include/*.h' 'tests/*.[ch]' 'bench/*.[ch]' 'src/*.cu' 'src/*.cuh' \
        'bench/*.cu' 'bench/*.cuh'
}

# format
for f in $(sources); do
    clang-format --dry-run -Werror "$f" 2>/dev/null || complain "$f: is not formatted; run clang-format -i"
done

# room ranks, sizes, documents, wording, test conditions that cannot fail
python3 tools/check.py || bad=1

# documents quote the figures that were measured
python3 bench/performance.py check || bad=1

# banned calls, and notes of unfinished work
banned='\b(atoi|atol|atof|strtol|strtoul|strtoll|strtoull|sprintf|vsprintf|strcpy|strcat|gets|alloca|system|popen|tmpnam)\('
hits=$(grep -rnE "$banned" src include --include='*.[ch]') && complain "banned calls:
$hits"
hits=$(grep -rnE '\b(printf|puts|exit|_exit)\(' src --include='*.c' | grep -v '^src/cli/' | grep -vE '(snprintf|str_puts|fprintf\(stderr, "pesc: internal)') &&
    complain "the library prints or exits:
$hits"
hits=$(grep -rnE '[^_a-z](malloc|calloc|realloc|free|strdup)\(' src --include='*.c' | grep -vE '^src/(base/mem|cli/)' | grep -vE 'op->(alloc|free)|(->|\.)free\(') &&
    complain "memory goes through base/mem:
$hits"
hits=$(grep -rnE '\b(fopen|open|mmap)\(' src --include='*.c' | grep -vE '^src/(base/io|cli/)|_open\(|[a-z]open\(' ) && complain "files go through base/io:
$hits"
hits=$(git grep -nIE '\b(TODO|FIXME|XXX|HACK)\b' -- src include tests bench tools docs ':!tools/check.sh') && complain "leftovers:
$hits"

[ "$bad" = 0 ] && echo "check: all rules hold"
exit "$bad"
