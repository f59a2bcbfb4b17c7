# The packaging files against the tree. `make deb` builds the packages and checks them with lintian.
load helper

setup() { cd "$BATS_TEST_DIRNAME/../.."; }

# The words of a list, one a line, without the packages of build-essential, which every Debian build has.
words() { tr -s ' ,\n' '\n' | sed '/^$/d' | grep -vxE 'gcc|make|libc6-dev' | sort; }

@test "packaging: the Debian source package builds with what tools/deps.sh installs" {
    sed -n 's/^Build-Depends: debhelper-compat (= 13), //p' packaging/debian/control | words > "$BATS_TEST_TMPDIR/control"
    sed -n '/^build="/,/"$/p' tools/deps.sh | sed 's/build=//; s/"//g' | words > "$BATS_TEST_TMPDIR/deps"
    [ -s "$BATS_TEST_TMPDIR/deps" ]
    diff "$BATS_TEST_TMPDIR/control" "$BATS_TEST_TMPDIR/deps"
}

@test "packaging: the container has the libraries that the command needs" {
    readelf -d "$PESC" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' > "$BATS_TEST_TMPDIR/libraries"
    [ "$(wc -l < "$BATS_TEST_TMPDIR/libraries")" -ge 8 ]
    while read -r library; do
        package=$(dpkg-query -S "*/$library" | sed 's/:.*//' | sort -u | head -n 1)
        if [ "$package" != libc6 ]; then grep -qw -- "$package" packaging/Dockerfile; fi
    done < "$BATS_TEST_TMPDIR/libraries"
}

@test "packaging: every file that make install writes is in one package" {
    cat packaging/debian/*.install | sed 's/\*/[^\/]*/g; s/^/^/; s/$/(\/|$)/' > "$BATS_TEST_TMPDIR/patterns"
    sed -n '/^install:/,/^$/p' Makefile | grep -oE '\$\((PREFIX|LIBDIR)\)[^ ]*' |
        sed 's/\$(PREFIX)/usr/; s/\$(LIBDIR)/usr\/lib\/'"$(gcc -dumpmachine)"'/' | grep -v cuda > "$BATS_TEST_TMPDIR/installed"
    [ "$(wc -l < "$BATS_TEST_TMPDIR/installed")" -ge 10 ]
    refute grep -vEf "$BATS_TEST_TMPDIR/patterns" "$BATS_TEST_TMPDIR/installed"
}

@test "packaging: the Python module has the version of the header" {
    version=$(sed -n 's/^#define PESC_VERSION "\(.*\)"/\1/p' include/pesc/pesc.h)
    grep -qx "__version__ = \"$version\".*" python/pesc/_version.py
}

@test "packaging: libpesc-dev brings the packages that pkg-config asks for" {
    sed -n '/^Package: libpesc-dev/,/^Description/p' packaging/debian/control > "$BATS_TEST_TMPDIR/dev"
    libs=$(sed -n 's/^LIBS *:= //p' Makefile)
    [ "$(wc -w <<< "$libs")" -ge 7 ]
    for lib in $libs; do
        package=$(dpkg-query -S "*/pkgconfig/$lib.pc" | sed 's/:.*//' | head -n 1)
        grep -qw -- "$package" "$BATS_TEST_TMPDIR/dev"
    done
}

@test "packaging: the container is not given what was built here" {
    grep -qx '/build\*' .dockerignore
}
