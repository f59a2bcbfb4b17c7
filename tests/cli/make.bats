# The Makefile as a user meets it: what it installs, and when.
load helper

ROOT=$BATS_TEST_DIRNAME/../..

# A machine on which every Debian package is missing; what would be installed is written to $T/installed.
setup() {
    T=$BATS_TEST_TMPDIR
    mkdir "$T/bin"
    printf '#!/bin/sh\nexit 1\n' > "$T/bin/dpkg-query"
    printf '#!/bin/sh\necho "$@" >> "%s/installed"\n' "$T" | tee "$T/bin/apt-get" "$T/bin/sudo" > /dev/null
    chmod +x "$T/bin"/*
    # this make is the user's own, not a part of the one that runs the tests
    unset MAKEFLAGS MAKELEVEL MFLAGS
}
front_door() { PATH=$T/bin:$PATH make -C "$ROOT" BUILD="$T/build" "$@" > "$T/out" 2>&1; }

@test "make: help, clean and dry runs install nothing" {
    for goal in help clean "-n demo" "-n test" "-n all" "--dry-run test" "-kn demo NVCC="; do
        # shellcheck disable=SC2086
        front_door $goal
        [ -s "$T/out" ]
        [ ! -e "$T/installed" ]
        [ ! -e "$T/build" ]
    done
    run front_door -q all # 1: something would be built
    [ "$status" = 1 ]
    [ ! -e "$T/installed" ]
}
@test "make: deps installs what is missing" {
    front_door deps
    grep -q 'install .*libjansson-dev' "$T/installed"
    grep -q 'install .*bats' "$T/installed"
}
@test "make: all cores by default, the user's -j before it" {
    printf 'include Makefile\n$(BUILD)/jobs:\n\t@echo $(MAKEFLAGS)\n' > "$T/jobs.mk"
    front_door -f "$T/jobs.mk" NVCC= "$T/build/jobs"
    grep -Eq -- "(^| )-j$(nproc)( |$)" "$T/out"
    front_door -f "$T/jobs.mk" NVCC= -j7 "$T/build/jobs"
    grep -Eq -- '(^| )-j7( |$)' "$T/out"
}
