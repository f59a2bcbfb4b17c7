load helper
bats_require_minimum_version 1.5.0

@test "help: pesc alone prints one screen" {
    pesc
    [ "$status" = 0 ]
    [ "$(wc -l <<< "$output")" -le 27 ]
    has '^  start +pesc init +a commented'
    pesc help --json
    local names
    names=$(grep -o '"name":"[a-z]*"' <<< "$output" | cut -d'"' -f4)
    pesc
    for c in $names; do
        [ $c = version ] || has "pesc $c "
    done
}

@test "help: every command explains itself, in two ways the same" {
    pesc help --json
    for c in $(grep -o '"name":"[a-z]*"' <<< "$output" | cut -d'"' -f4); do
        pesc "$c" --help
        [ "$status" = 0 ]
        has "^usage: pesc $c"
        has '^  -c, --config FILE.yaml'
        local first=$output
        pesc help "$c"
        gives "$first"
    done
}

@test "help: the words everybody tries" {
    pesc
    local first=$output
    pesc --help
    gives "$first"
    pesc -h
    gives "$first"
    pesc help
    gives "$first"
    pesc version
    has '^pesc [0-9]+\.[0-9]+\.[0-9]+$'
    first=$output
    pesc --version
    gives "$first"
    pesc version --json
    has '^\{"version":"[0-9.]+"\}$'
}

@test "help: there is space between an option and what it does" {
    pesc help data
    has '^      --preset idae-500k\|idae-720k$'
}
@test "help: lines fit a screen of 100 columns" {
    for c in info new tokenize generate chat bench; do
        pesc help $c
        [ "$(awk 'length > 100' <<< "$output")" = "" ]
    done
}

@test "help: the reference pages are what the program prints" {
    local docs=$BATS_TEST_DIRNAME/../../docs/commands
    pesc help --json
    for c in $(grep -o '"name":"[a-z]*"' <<< "$output" | cut -d'"' -f4); do
        diff "$docs/$c.md" <("$PESC" help "$c" --markdown)
    done
}

@test "help: exit codes are on one page, as every command's help gives them" {
    local codes
    codes=$(sed -n 's/^| \([0-9]*\) | \(.*\) |$/\1 \2/p' "$BATS_TEST_DIRNAME/../../docs/exit-codes.md")
    [ "$("$PESC" train --help | sed -n '/^exit codes/,$s/^  \([0-9][0-9]*\)  *\(.*\)$/\1 \2/p')" = "$codes" ]
}

@test "help: options stand under the headings of their groups" {
    pesc train --help
    [ "$(grep -E '^ [a-z]' <<< "$output" | tr '\n' ';')" = " model; data; method; schedule and optimiser; device, memory and processes; output; command;" ]
    [[ $(sed -n '/^ schedule/,/^ device/p' <<< "$output") == *--warmup-ratio* ]]
}

@test "help: the manual page has every command and no roff warning" {
    pesc help --man
    [ "$status" = 0 ]
    has '^\.TH PESC 1'
    has '^\.SS "pesc generate '
    if ! command -v man > /dev/null || ! command -v groff > /dev/null; then skip "needs man and groff"; fi
    [ -z "$(groff -man -Tutf8 -ww <<< "$output" 2>&1 > /dev/null)" ]
}

@test "help: bash completes commands, flags and files" {
    pesc help --completion bash
    source "$BATS_TEST_TMPDIR/stdout"
    COMP_WORDS=(pesc gen) COMP_CWORD=1
    _pesc
    [ "${COMPREPLY[*]}" = generate ]
    COMP_WORDS=(pesc generate --max) COMP_CWORD=2
    _pesc
    [ "${COMPREPLY[*]}" = --max-tokens ]
}

@test "help: what is wrong" {
    pesc help genrate
    fails 2 'there is no command "genrate"; did you mean generate?'
    pesc help --markdown
    fails 2 "help: --markdown needs a command: pesc help info --markdown"
    pesc help --completion fish
    fails 2 'help: --completion: found "fish", expected bash'
}

commands() { "$PESC" help --json | grep -o '"name":"[a-z]*"' | cut -d'"' -f4; }

@test "help: every command lists exactly its rows of options.h, with their defaults" {
    for c in $(commands); do
        python3 "$BATS_TEST_DIRNAME/rows.py" "$c" > "$BATS_TEST_TMPDIR/rows"
        "$PESC" "$c" --help > "$BATS_TEST_TMPDIR/help"
        python3 - "$BATS_TEST_TMPDIR/rows" "$BATS_TEST_TMPDIR/help" <<'PY'
import re, sys
rows = [line.split() for line in open(sys.argv[1])]
text = open(sys.argv[2]).read()
arguments, options = re.match(r".*?(?:\narguments\n(.*?))?\noptions \([^\n]*\n(.*?)\nexamples\n", text, re.S).groups()
parts = re.split(r"^ {2,6}(?:-., )?--([a-z0-9-]+)", options, flags=re.M)[1:]
flags = dict(zip(parts[::2], (re.sub(r"\s+", " ", p) for p in parts[1::2])))
positional = re.findall(r"^  [A-Z]+", arguments or "", re.M)
keys = [key.replace("_", "-") for key, _, _ in rows]
assert len(set(keys)) == len(keys) and len(flags) == len(parts) // 2
assert set(flags) <= set(keys), set(flags) - set(keys)
assert len(keys) == len(flags) + len(positional), (set(keys) - set(flags), positional)
for key, (_, kind, default) in zip(keys, rows):
    told = re.search(r"\(default ([^)]*)\)", flags.get(key, ""))
    if key in flags:
        assert (told.group(1) if told else "-") == ("-" if default == "false" else default), (key, told, default)
PY
    done
}

@test "help: the default of every option is a value of it" {
    for c in $(commands); do
        local flags=()
        while read -r key kind default; do
            [ "$default" = - ] || flags+=("--${key//_/-}=$default")
        done < <(python3 "$BATS_TEST_DIRNAME/rows.py" "$c")
        [ ${#flags[@]} -gt 2 ]
        pesc "$c" "${flags[@]}" --help
        [ "$status" = 0 ]
    done
}

@test "help: craft and train have the same range for what both know" {
    for option in experts top-k adapter-dim adapter-scale; do
        pesc craft x -o y "--$option" 1e99
        [ "$status" = 2 ]
        local sentence=${stderr#pesc: craft: }
        pesc train x -o y "--$option" 1e99
        fails 2 "train: $sentence"
    done
}

@test "help: every example is accepted up to the files it names" {
    local dir=$BATS_TEST_TMPDIR/empty line n=0
    mkdir "$dir"
    cd "$dir"
    pesc help --json
    for c in $(grep -o '"name":"[a-z]*"' <<< "$output" | cut -d'"' -f4); do
        while read -r line; do
            [[ $line == pesc\ * ]] || continue
            [[ $line != "pesc demo"* ]] || continue
            n=$((n + 1))
            pesc() { timeout 5 "$PESC" "$@"; }
            run --separate-stderr eval "$line < /dev/null"
            if [[ $stderr == *"there is no such option"* || $stderr == *"has no effect here"* || $stderr == *"unexpected"* || $stderr == *"usage: pesc"* ]]; then
                echo "$line: $stderr"
                return 1
            fi
        done < <("$PESC" help "$c" --markdown | sed -n '/^## Examples/,/^## Exit/p' | sed -e ':a' -e '/\\$/{N;s/\\\n *//;ba}' -e 's/^ *//' -e 's/^echo [^|]*| *//')
    done
    [ "$n" -gt 40 ]
}
