#!/bin/sh
# Runs every fuzzer that `make fuzz` built for SECONDS_EACH from generated seeds. A crash, a
# hang (10 s), a leak or more than 2 GiB is a failure; the input that caused it is kept in the build directory.
set -eu
cd "$(dirname "$0")/../.."
BUILD=${BUILD:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for s in tests/fuzz/seeds*.py; do python3 "$s" "$work"; done
failed=0 passed=0
for f in "$BUILD"/fuzz/fuzz_*; do
    name=$(basename "$f")
    mkdir -p "$work/$name" "$BUILD/fuzz/corpus/$name"
    if "$f" -max_total_time="${SECONDS_EACH:-60}" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$BUILD/fuzz/found-$name-" "$BUILD/fuzz/corpus/$name" "$work/$name" >"$work/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        tail -n 40 "$work/log"
    fi
    printf '%-24s %s\n' "$name" "$(grep -E 'number_of_executed_units' "$work/log" || echo 'no figures')"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
