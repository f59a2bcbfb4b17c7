#!/bin/sh
# Runs the tests that `make test` built and adds them up.
#   tests/run.sh c     the C programs (also used by make asan and make tsan)
#   tests/run.sh all   these, the command line, hostile files, and the installed library
set -u
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
PESC=$(realpath -m "$BUILD/pesc")
export PESC
passed=0 failed=0 skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# add NAME PASSED FAILED: one part's result, its output shown when it failed
add() {
    passed=$((passed + $2)) failed=$((failed + $3))
    printf '%-34s %5d passed %3d failed\n' "$1" "$2" "$3"
    [ "$3" = 0 ] || cat "$log"
}

# count PATTERN: the number of lines of the log that match
count() { grep -cE "$1" "$log"; }

for t in "$BUILD"/tests/unit/test_* "$BUILD"/tests/golden/test_* "$BUILD"/tests/ops/run; do
    case $t in *.o | *.d) continue ;; esac
    [ -x "$t" ] || continue
    "$t" >"$log" 2>&1
    rc=$?
    ok=$(count '^\[       OK \]') bad=$(count '^\[  FAILED  \] [A-Za-z_]')
    # a crash or a leak after the last test counts as a failure of its own
    [ $rc = 0 ] || [ "$bad" != 0 ] || bad=1
    [ "$ok" != 0 ] || [ "$bad" != 0 ] || bad=1
    add "${t#"$BUILD"/tests/}" "$ok" "$bad"
done

if [ "$1" = all ]; then
    for b in tests/cli/*.bats; do
        bats --tap "$b" >"$log" 2>&1
        rc=$?
        left=$(count '^ok .* # skip')
        ok=$(($(count '^ok ') - left)) bad=$(count '^not ok ')
        skipped=$((skipped + left))
        [ $rc = 0 ] || [ "$bad" != 0 ] || bad=1
        add "${b#tests/}" "$ok" "$bad"
    done
    for h in tests/faults/run_*.py; do
        [ -f "$h" ] || continue
        python3 "$h" --pesc "$PESC" >"$log" 2>&1
        rc=$?
        ok=$(sed -n 's/^\([0-9]*\) passed.*/\1/p' "$log" | tail -n 1)
        bad=$(sed -n 's/.*passed, \([0-9]*\) failed.*/\1/p' "$log" | tail -n 1)
        ok=${ok:-0} bad=${bad:-1}
        [ $rc = 0 ] || [ "$bad" != 0 ] || bad=1
        add "${h#tests/}" "$ok" "$bad"
    done
    # the CUDA part: here its one symbol, on a GPU everything (make test-cuda)
    if [ -f "$BUILD/pesc-cuda.so" ]; then
        nm -D --defined-only "$BUILD/pesc-cuda.so" | awk '{print $3}' >"$log"
        [ "$(cat "$log")" = pesc_cuda_open ]
        rc=$?
        add "pesc-cuda.so" "$((rc == 0))" "$((rc != 0))"
    fi
    BUILD=$BUILD tests/cuda.sh >"$log" 2>&1
    rc=$?
    ok=$(sed -n 's/^\([0-9]*\) passed, .*/\1/p' "$log")
    if [ $rc = 0 ] && [ -z "$ok" ]; then
        skipped=$((skipped + 1))
        cat "$log"
    else
        add cuda.sh "${ok:-0}" "$((rc != 0))"
    fi
    tests/install.sh "$BUILD" >"$log" 2>&1
    rc=$?
    add install.sh "$(count '^ok ')" "$((rc != 0))"
fi

if [ "$skipped" = 0 ]; then
    echo "$passed passed, $failed failed"
else
    echo "$passed passed, $failed failed, $skipped skipped"
fi
[ "$failed" = 0 ]
