#!/bin/sh
# The house rules that a machine can see. Prints each break as file:line and fails at the end.
set -u
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
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

# include ranks: an include points to a lower rank or stays in its room
python3 - <<'EOF' || bad=1
import pathlib, re, sys
rank = dict(base=0, tensor=1, text=1, format=2, backend=2, comm=2, model=3, data=3, craft=4, esft=4,
            train=4, infer=4, routing=4, plot=4, eval=5, serve=5, cli=6)
bad = 0
code = [p for p in pathlib.Path("src").rglob("*") if p.suffix in (".c", ".h", ".cu", ".cuh")]
for path in sorted(code):
    room = path.parts[1]
    for number, line in enumerate(path.read_text().splitlines(), 1):
        m = re.match(r'#include "([^"]+)"', line)
        if not m:
            continue
        target = m.group(1).split("/")[0]
        if target == "pesc":
            continue
        fine = target == room or (room != "cli" and target in rank and rank[target] < rank[room])
        if not fine:
            print(f"{path}:{number}: {room} may not include {m.group(1)}", file=sys.stderr)
            bad = 1
    # sizes: a file fits in a head, a function on a screen
    lines = path.read_text().splitlines()
    if len(lines) > 600:
        print(f"{path}: {len(lines)} lines; split before 600", file=sys.stderr)
        bad = 1
    limit = 120 if "backend" in path.parts else 60
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            start = number
        elif line == "}" and start:
            if number - start - 1 > limit:
                print(f"{path}:{start}: a function of {number - start - 1} lines; at most {limit}",
                      file=sys.stderr)
                bad = 1
            start = None
# documents: every function the walks name exists
names = set(re.findall(r"\b([a-z][a-z0-9]*_[a-z0-9_]+)\b", "\n".join(
    p.read_text() for p in pathlib.Path("src").rglob("*.[ch]"))))
walk = pathlib.Path("docs/architecture.md")
for name in re.findall(r"`([a-z][a-z0-9]*_[a-z0-9_]+)`", walk.read_text()):
    if name not in names:
        print(f"{walk}: names {name}, which does not exist", file=sys.stderr)
        bad = 1
sys.exit(bad)
EOF

# banned calls and leftovers
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

# exported symbols
others=$(nm -D --defined-only "$BUILD/install/libpesc.so.0" | awk '$3 !~ /^pesc_/ {print $3}')
[ -z "$others" ] || complain "exported besides pesc_*: $others"

[ "$bad" = 0 ] && echo "check: all rules hold"
exit "$bad"
