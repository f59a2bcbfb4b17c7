#!/bin/sh
# Runs the tests that `make test` built, JOBS at a time (all cores by default), and adds them up.
#   tests/run.sh c     the C programs (also used by make asan and make tsan)
#   tests/run.sh all   these, the command line, hostile files, and the installed library
# RUN, if it is set, is a command that runs the C programs: an emulator (tests/arm.sh). QEMU makes no process of the kind that
# the sandbox needs.
# The results are printed in the same order whatever JOBS is; the output of a part only if it failed.
set -u
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
PESC=$(realpath -m "$BUILD/pesc")
export BUILD PESC
# fontconfig, which cairo uses, keeps what it has read until the process ends
export LSAN_OPTIONS="suppressions=$PWD/tests/support/lsan.supp:print_suppressions=0"

# ---- one part: run.sh part NUMBER PATH writes NUMBER.log and then NUMBER.done, "passed failed skipped"

# count PATTERN: the number of lines of the log that match
count() { grep -cE "$1" "$log"; }

run_part() { # PATH
    ok=0 bad=0 left=0
    case $1 in
    tests/cli/*)
        bats --tap "$1" >"$log" 2>&1
        rc=$?
        left=$(count '^ok .* # skip')
        ok=$(($(count '^ok ') - left)) bad=$(count '^not ok ')
        ;;
    tests/faults/*)
        CUDA_VISIBLE_DEVICES= python3 "$1" --pesc "$PESC" >"$log" 2>&1
        rc=$?
        ok=$(sed -n 's/^\([0-9]*\) passed.*/\1/p' "$log" | tail -n 1)
        bad=$(sed -n 's/.*passed, \([0-9]*\) failed.*/\1/p' "$log" | tail -n 1)
        left=$(grep -c '^SKIPPED' "$log")
        ;;
    *.so) # the CUDA part has one symbol; make test-cuda tests the rest on a GPU
        nm -D --defined-only "$1" | awk '{print $3}' >"$log"
        [ "$(cat "$log")" = pesc_cuda_open ]
        rc=$?
        ok=$((rc == 0))
        ;;
    tests/cuda.sh)
        "$1" >"$log" 2>&1
        rc=$?
        ok=$(sed -n 's/^\([0-9]*\) passed, .*/\1/p' "$log")
        [ $rc != 0 ] || [ -n "$ok" ] || left=1
        ;;
    tests/install.sh)
        "$1" "$BUILD" >"$log" 2>&1
        rc=$?
        ok=$(count '^ok ') left=$(count '^SKIPPED: ')
        ;;
    *)
        ${RUN:-} "$1" >"$log" 2>&1
        rc=$?
        ok=$(count '^\[       OK \]') bad=$(count '^\[  FAILED  \] [A-Za-z_]')
        ;;
    esac
    ok=${ok:-0} bad=${bad:-0}
    # a crash or a leak after the last test, and a program without a test, are failures of their own
    if [ "$bad" = 0 ] && { [ $rc != 0 ] || [ $((ok + left)) = 0 ]; }; then bad=1; fi
    echo "$ok $bad $left" >"$work/$number.tmp"
    mv "$work/$number.tmp" "$work/$number.done"
}

if [ "$1" = part ]; then
    number=$2 log=$work/$2.log
    run_part "$3"
    exit 0
fi

# ---- all parts

work=$(mktemp -d)
export work
runner=
trap 'kill $runner 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

parts() { # c or all
    echo "$BUILD/tests/ops/run" # the longest of them
    for t in tests/unit/test_*.c tests/golden/test_*.c; do echo "$BUILD/${t%.c}"; done | grep -v "^${RUN:+.*/test_sandbox}$"
    [ "$1" = all ] || return 0
    ls tests/faults/run_*.py tests/cli/*.bats
    ls "$BUILD"/pesc-cuda.so 2>/dev/null
    ls tests/cuda.sh tests/install.sh
}
parts "$1" >"$work/parts"
nl -ba -w1 -s' ' "$work/parts" | xargs -P "${JOBS:-$(nproc)}" -L1 sh tests/run.sh part &
runner=$!

passed=0 failed=0 skipped=0 number=0
while read -r part; do
    number=$((number + 1)) log=$work/$number.log
    while [ ! -e "$work/$number.done" ]; do
        kill -0 $runner 2>/dev/null || [ -e "$work/$number.done" ] || echo "0 1 0" >"$work/$number.done"
        sleep 0.1
    done
    read -r ok bad left <"$work/$number.done"
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + left))
    part=${part#"$BUILD"/} part=${part#tests/}
    if [ $((ok + bad)) = 0 ]; then
        cat "$log" # says why it was skipped
        continue
    fi
    printf '%-34s %5d passed %3d failed\n' "$part" "$ok" "$bad"
    [ "$left" = 0 ] || grep '^SKIPPED' "$log"
    grep '^SKIPPED: ' "$log"
    [ "$bad" = 0 ] || cat "$log"
done <"$work/parts"

if [ "$skipped" = 0 ]; then
    echo "$passed passed, $failed failed"
else
    echo "$passed passed, $failed failed, $skipped skipped"
fi
[ "$failed" = 0 ]
