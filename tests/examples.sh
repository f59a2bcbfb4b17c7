#!/bin/sh
# The programs of examples/ and those that the pages of docs/api show, compiled with pkg-config against
# an installed copy of the library, as a user does it, and run on the embedded model. Part of install.sh.
#   tests/examples.sh PREFIX [LIBDIR]
set -eu
prefix=$1 lib=${2:-$1/lib}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PKG_CONFIG_PATH="$lib/pkgconfig" LD_LIBRARY_PATH="$lib"
base=share/base data=share/test.jsonl

# ---- compile

compile() { # NAME SOURCE
    # shellcheck disable=SC2046
    gcc -Wall -Wextra -Werror "$2" -o "$work/$1" $(pkg-config --define-variable=prefix="$prefix" --cflags --libs pesc)
}
for file in examples/*.c; do
    name=$(basename "$file" .c)
    compile "$name" "$file"
    echo "ok $file compiles"
done
pages=$(ls docs/api/*.md | grep -v README)
for page in $pages; do
    name=page-$(basename "$page" .md)
    sed -n '/^```c$/,/^```$/p' "$page" | sed '/^```/d' >"$work/$name.c"
    grep -q 'int main' "$work/$name.c" || { echo "$page shows no program"; exit 1; }
    compile "$name" "$work/$name.c"
    echo "ok the program of $page compiles"
done

# ---- run

runs() { # NAME EXPECTED ARGUMENT...; EXPECTED: a regular expression for a line of the output, or ""
    name=$1 expected=$2
    shift 2
    "$work/$name" "$@" >"$work/out" 2>"$work/err" </dev/null || { cat "$work/err"; exit 1; }
    [ -z "$expected" ] || grep -Eq "$expected" "$work/out" || { echo "$name: no line matches '$expected' in:"; cat "$work/out"; exit 1; }
    touch "$work/$name.ran"
    echo "ok $name runs"
}
runs complete '[a-z]{3}' $base "Where does" cpu
runs train '^step 4/4  loss [0-9.]+ ' $base $data "$work/tuned" 4
runs routes 'expert [0-9] .* % ' "$work/tuned/run" $data "$work/routes.svg"
grep -q '</svg>' "$work/routes.svg"
printf 'Where does Senbre live?\nName the animal of Faide.\n' |
    "$work/chat" "$work/tuned/run" >"$work/out" 2>"$work/err" || { cat "$work/err"; exit 1; }
[ "$(grep -c '[a-z]' "$work/out")" -ge 2 ]
touch "$work/chat.ran"
echo "ok chat answers two messages"

printf '{"gate_scores": {"1": {"0": 0.7, "1": 0.2, "2": 0.1}}}' >"$work/summary.json"
runs page-devices-and-models '^llama, [0-9]+ layers' $base
runs page-text '^ +[0-9]+ "' $base
runs page-sessions '^([0-9]+ ){16}$' $base
runs page-grammars '"degrees"' share/base
runs page-data '^[0-9]+ tokens, [0-9]+ targets: Senbre lives' $base $data
runs page-training '^step 3: loss' $base $data "$work/run"
runs page-crafting '^0 of [0-9]+ logits differ' $base "$work/sparse"
runs page-evaluation '^loss [0-9.]+, [0-9]+ of 12 answers' $base $data
runs page-esft '^layer 1: 1 of 3 experts' "$work/summary.json" "$work/expert_cfg.json"
[ -s "$work/expert_cfg.json" ]
runs page-pictures '' "$work"
[ -s "$work/loss.svg" ]
[ -s "$work/experts.png" ]
runs page-serving '^listening on port [0-9]+$' $base
runs page-options '^lr: 0.001 ' lr=0.001
for program in "$work"/*; do
    if [ -x "$program" ] && [ ! -d "$program" ] && [ ! -e "$program.ran" ]; then
        echo "$(basename "$program") was not run"
        exit 1
    fi
done
echo "ok every program was run"

# ---- every function is on a page

for function in $(nm -D --defined-only "$lib/libpesc.so.0" | awk '{print $3}'); do
    # shellcheck disable=SC2086
    grep -q "$function(" $pages docs/api/README.md || { echo "no page of docs/api has $function()"; exit 1; }
done
echo "ok every public function is on a page"
