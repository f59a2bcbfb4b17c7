#!/bin/sh
# Every op under compute-sanitizer (memcheck, then racecheck) on a GPU, in pieces of a limited time.
#   BUILD=dir tests/sanitize.sh [FIRST]     begins no op after 80 s (LIMIT), and prints the number of the one to go on with
# One op may take 60 s at most (EACH).
set -u
cd "$(dirname "$0")/.." || exit 2
names=$(sed -n '/define OP_TEST_MAP/,/^\/\*/p' tests/ops/cases.h | grep -o 'X([a-z0-9_]*)' | sed 's/X(\(.*\))/\1/')
first=${1:-1} began=$(date +%s) n=0 failed=0
for tool in memcheck racecheck; do
    for op in $names; do
        n=$((n + 1))
        [ "$n" -ge "$first" ] || continue
        if [ $(($(date +%s) - began)) -ge "${LIMIT:-80}" ]; then
            echo "go on with: tests/sanitize.sh $n"
            exit "$failed"
        fi
        printf '%3d %-18s ' "$n" "$op"
        SANITIZE=$tool ONLY=$op timeout "${EACH:-60}" tests/cuda.sh || { failed=1 && echo "$tool $op: failed, or took too long"; }
    done
done
echo "all $n are done"
exit "$failed"
