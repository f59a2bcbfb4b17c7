load helper
setup_file() {
    make_model
    cat > "$D/good.jsonl" <<'JSON'
{"instruction": "hello", "output": "world"}
{"instruction": "hello", "output": "hello hello hello hello hello hello hello hello"}
JSON
    {
        echo '{"input_ids": [1, 2, 3, 4], "labels": [-100, -100, 3, 4]}'
        echo '{"input_ids": [1, 2, 3], "labels": [-100, -100, -100]}'
        echo '{"input_ids": [1, 2, 3], "labels": [-100, 2]}'
        echo '{"input_ids": [1, 9999], "labels": [-100, 9999]}'
    } > "$D/bad.jsonl"
    for i in $(seq 30); do echo "{\"instruction\": \"g$i\", \"output\": \"x\"}"; done > "$D/g.jsonl"
    for i in $(seq 10); do echo "{\"problem\": \"c$i\", \"solution\": \"x\"}"; done > "$D/c1.jsonl"
    for i in $(seq 10); do echo "{\"instruction\": \"e$i\", \"response\": \"x\"}"; done > "$D/c2.jsonl"
    for i in $(seq 10); do echo "{\"query\": \"m$i\", \"response\": \"x\"}"; done > "$D/m.jsonl"
}

mix() { pesc data mix --general "$D/g.jsonl" --code "$D/c1.jsonl" "$D/c2.jsonl" --maths "$D/m.jsonl" "$@"; }

@test "data check: good records, with a model and with a tokenizer" {
    for t in "$D/model" "$D/tok" ; do
        pesc data check "$t" --data "$D/good.jsonl" --seq-len 30
        [ "$status" = 0 ]
        has '^data +.*/good.jsonl \(alpaca\)$'
        has '^template +own$'
        has '^records +2$'
        has '^over length +1 longer than 30 tokens$'
        has '^bad +0$'
    done
}

@test "data check: bad records are counted, the first is shown, exit 3" {
    pesc data check "$D/model" --data "$D/bad.jsonl" --json
    [ "$status" = 3 ]
    has '"records":4,"bad":2,"without_target":1,'
    has '"tokens":7,"trained":2}'
    [ "$(grep -c '^pesc: note: ' <<< "$stderr")" = 3 ]
    [[ $stderr == "pesc: note: $D/bad.jsonl:2: has nothing to train on: "* ]]
    [[ $stderr == *"pesc: note: $D/bad.jsonl:3: labels: has 2 entries, input_ids 3; "* ]]
    [[ $stderr == *"pesc: note: $D/bad.jsonl:4: token 1 is 9999, but "* ]]
    [[ $stderr == *"pesc: 3 of 4 records cannot be trained on; the first: $D/bad.jsonl:2: has nothing to train on: "* ]]
    sed -i 2d "$D/bad.jsonl"
    pesc data check "$D/model" --data "$D/bad.jsonl" -q
    [ "$status" = 3 ]
    [[ $stderr == "pesc: 2 of 3 records cannot be trained on; the first: $D/bad.jsonl:2: labels: has 2 entries, input_ids 3; "* ]]
}

@test "data check: at most 20 bad records are listed" {
    for i in $(seq 25); do echo '{"text": 5}'; done > "$BATS_TEST_TMPDIR/b.jsonl"
    echo '{"text": "a"}' >> "$BATS_TEST_TMPDIR/b.jsonl"
    pesc data check "$D/model" --data "$BATS_TEST_TMPDIR/b.jsonl"
    [ "$status" = 3 ]
    [ "$(grep -c '^pesc: note: .*/b.jsonl:[0-9]*: text: found' <<< "$stderr")" = 20 ]
    grep -q '^pesc: note: and 5 more$' <<< "$stderr"
}

# ---- the data of a run

run_lora() { pesc train "$D/model" --method lora --lora-r 2 --seq-len 64 --batch 4 --steps 3 --data "$@"; }

@test "train: bad records of training and validation data are listed before the first step" {
    local t=$BATS_TEST_TMPDIR
    { cat "$D/good.jsonl"; echo '{"instruction": 5, "output": "x"}'; cat "$D/good.jsonl"; echo '{}'; } > "$t/bad.jsonl"
    { cat "$D/good.jsonl"; echo 'x'; } > "$t/eval.jsonl"
    run_lora "$t/bad.jsonl" --eval-data "$t/eval.jsonl" --eval-every 2 -o "$t/r"
    [ "$status" = 3 ]
    [[ $stderr == *"pesc: note: $t/bad.jsonl:3: instruction: found an integer, expected text: {"* ]]
    [[ $stderr == *"pesc: note: $t/bad.jsonl:6: instruction: is missing; found nothing: {}"* ]]
    [[ $stderr == *"pesc: note: $t/eval.jsonl:3: "* ]]
    [[ $stderr == *"pesc: training data: 2 of 6 records cannot be used, and nothing was trained; the first: $t/bad.jsonl:3: "* ]]
    [ ! -e "$t/r" ]
    run_lora "$D/good.jsonl" --eval-data "$t/eval.jsonl" --eval-every 2 -o "$t/r" -q
    [ "$status" = 3 ]
    [[ $stderr == "pesc: validation data: 1 of 3 records cannot be used, and nothing was trained; the first: $t/eval.jsonl:3: "* ]]
}

@test "train: long records are told at the start, of training and validation data apart" {
    local t=$BATS_TEST_TMPDIR
    run_lora "$D/good.jsonl" --eval-data "$D/good.jsonl" "$D/g.jsonl" --eval-every 3 --seq-len 35 -o "$t/r"
    [ "$status" = 0 ]
    grep -q '^pesc: note: training data: 1 of 2 records are longer than seq_len 35 and are dropped$' <<< "$stderr"
    grep -q '^pesc: note: validation data: 1 of 32 records are longer than seq_len 35 and are dropped$' <<< "$stderr"
    [[ ${stderr%%step 1/3*} == *"validation data: "* ]]
    run_lora "$D/good.jsonl" --seq-len 20 --over-length truncate -o "$t/s"
    fails 2 "every record is longer than seq_len 20 and has no answer within it; raise seq_len"
}

@test "train: a resumed run does not check the same records again" {
    local t=$BATS_TEST_TMPDIR
    run_lora "$D/g.jsonl" -o "$t/r" -q
    [ "$status" = 0 ]
    grep -q '"records": 30' "$t/r/records.json"
    grep -q "\"path\": \"$D/g.jsonl\"" "$t/r/records.json"
    sed -i 's/"over_length": 0/"over_length": 7/' "$t/r/records.json" # is believed: nothing was read
    run_lora "$D/g.jsonl" -o "$t/r" --resume --steps 4
    [ "$status" = 0 ]
    [[ $stderr == *"training data: 7 of 30 records are longer than seq_len 64 and are dropped"* ]]
    run_lora "$D/g.jsonl" -o "$t/r2" --seq-len 60 -q
    cp "$t/r/records.json" "$t/r2/records.json" # of another seq_len: not believed
    pesc train "$D/model" --method lora --lora-r 2 --seq-len 60 --batch 4 --steps 4 --data "$D/g.jsonl" -o "$t/r2" --resume
    [ "$status" = 0 ]
    refute grep -q 'are longer' <<< "$stderr"
}

@test "data stats: lengths, for people and as JSON" {
    pesc data stats "$D/model" --data "$D/good.jsonl" --format alpaca
    [ "$status" = 0 ]
    has '^ +[0-9]+-[0-9]+ +1 █+$'
    pesc data stats "$D/model" --data "$D/g.jsonl" "$D/m.jsonl" --seq-len 2 --json
    [ "$status" = 0 ]
    has '"records":40,.*"over_length":40,'
    [ "$(grep -o '"records":[0-9]*}' <<< "$output" | tr -dc '0-9\n' | awk '{ n += $1 } END { print n }')" = 40 ]
}

@test "data stats: exact figures" {
    local i ids=0 f=$BATS_TEST_TMPDIR/f
    for i in $(seq 10); do
        ids=$ids,$i
        echo "{\"input_ids\": [$ids], \"labels\": [$ids]}"
    done > "$f"
    pesc data stats "$D/model" --data "$f" --seq-len 9 --json
    has '"over_length":2,"tokens":65,"trained":55,"shortest":2,"median":6,"p90":10,"p99":11,"longest":11,'
    has '"histogram":\[\{"from":2,"to":2,"records":1\},\{"from":3,"to":3,"records":1\},\{"from":4,"to":5,"records":2\},\{"from":6,"to":7,"records":2\},\{"from":8,"to":11,"records":4\}\]'
}

@test "data inspect: what is trained stands in brackets, the end token with it" {
    pesc data inspect "$D/model" --data "$D/good.jsonl" -n 1
    has '^-- record 1 of 2: [0-9]+ tokens, [0-9]+ trained$'
    has '^⟦world<\|im_end\|>⟧'
    has '^hello<\|im_end\|>$'
    refute has 'record 2'
    pesc data inspect "$D/model" --data "$D/bad.jsonl" -n 1 --json
    has '^\[\{"record":0,"ids":\[1,2,3,4\],"labels":\[-100,-100,3,4\],"runs":\[\{"trained":false,'
}

@test "data mix: counts, the same bytes of the same seed, the account" {
    local o=$BATS_TEST_TMPDIR/o
    mix --counts 20,15,5 -o "$o" --seed 4
    [ "$status" = 0 ]
    has '^general +20 of 30 records; left out 0 duplicates, 0 without prompt or answer$'
    [ "$(grep -c '"domain":"code"}$' "$o")" = 15 ]
    [ "$(sort -u "$o" | wc -l)" = 40 ]
    grep -q '"seed": 4' "$o.mix.json"
    mix --counts 20,15,5 -o "$o.2" --seed 4 --json
    has '"records":40,"parts":\[\{"domain":"general","records":20,'
    cmp "$o" "$o.2"
    mix --counts 20,15,5 -o "$o"
    fails 2 "data mix: $o exists already; --overwrite replaces it"
    cp "$o" "$o.general"
    pesc data mix --general "$o.general" --counts 20,0,0 -o "$o.general" --overwrite
    fails 2 "data mix: $o.general is one of the files to mix; give another -o"
    cmp "$o" "$o.general"
    mix --counts 20,15,5 -o "$BATS_TEST_TMPDIR" --overwrite
    fails 2 "data mix: $BATS_TEST_TMPDIR is a directory; give the file to write"
    mix --counts 20,15,5 -o "$o" --overwrite
    refute cmp "$o" "$o.2"
    pesc data check "$D/model" --data "$o"
    [ "$status" = 0 ]
    has '\(messages\)$'
}

@test "data mix: a task and as many alignment records" {
    local o=$BATS_TEST_TMPDIR/o
    pesc data mix --task "$D/m.jsonl" --alignment "$D/g.jsonl" --counts 8,8 -o "$o"
    [ "$status" = 0 ]
    [ "$(grep -c '"domain":"task"}$' "$o")" = 8 ]
    [ "$(grep -c '"domain":"alignment"}$' "$o")" = 8 ]
    pesc data mix --task "$D/m.jsonl" --alignment "$D/g.jsonl" --counts 8,8,8 -o "$o.2"
    fails 2 'data mix: --counts: found "8,8,8", expected 2 numbers, of task and alignment'
    pesc data mix --task "$D/m.jsonl" --counts 8,8 -o "$o.2"
    fails 2 "data mix: --alignment is missing: 8 records of it are wanted"
    pesc data mix --task "$D/m.jsonl" --preset idae-500k -o "$o.2"
    fails 2 "data mix: --counts or --total is missing: how many records of each"
}

@test "data mix: any number of named parts, by counts or by weights" {
    local o=$BATS_TEST_TMPDIR/o
    for i in $(seq 12); do echo "law $i,x"; done | sed '1i instruction,output' > "$BATS_TEST_TMPDIR/l.csv"
    parts() { pesc data mix --domain law="$BATS_TEST_TMPDIR/l.csv" --domain code="$D/c1.jsonl" \
        --domain maths="$D/m.jsonl" --domain code="$D/c2.jsonl" --domain rest="$D/g.jsonl" "$@"; }
    parts --counts 3,11,0,2 -o "$o" --json
    [ "$status" = 0 ]
    has '"records":16,"parts":\[\{"domain":"law","records":3,"available":12,.*\{"domain":"code","records":11,"available":20,.*\{"domain":"rest","records":2,'
    [ "$(grep -c '"domain":"code"}$' "$o")" = 11 ]
    parts --total 20 --weights 1,2.5,0.5,1 -o "$o.2"
    [ "$status" = 0 ]
    [ "$(grep -o '"domain":"[a-z]*"' "$o.2" | sort | uniq -c | tr -s ' \n' ' ')" = ' 10 "domain":"code" 4 "domain":"law" 2 "domain":"maths" 4 "domain":"rest" ' ]
    parts --total 10 -o "$o.3" # equal weights, as far as whole records go
    [ "$(grep -o '"domain":"[a-z]*"' "$o.3" | sort | uniq -c | awk '{ print $1 }' | sort | tr -d '\n')" = 2233 ]
    parts --counts 1,2,3 -o "$o.4"
    fails 2 'data mix: --counts: found "1,2,3", expected 4 numbers, of law, code, maths and rest'
    parts --total 10 --weights 1,x,1,1 -o "$o.4"
    fails 2 'data mix: --weights: found "1,x,1,1", expected 4 numbers, of law, code, maths and rest'
    parts --total 10 --general "$D/g.jsonl" -o "$o.4"
    fails 2 'data mix: --domain names the parts; give --general, --code and --maths as --domain NAME=FILE too'
    pesc data mix --domain "$D/g.jsonl" --total 10 -o "$o.4"
    fails 2 "data mix: --domain: found \"$D/g.jsonl\", expected NAME=FILE"
}

@test "data mix: too few records, and what is missing" {
    local o=$BATS_TEST_TMPDIR/o
    mix --preset idae-500k -o "$o"
    fails 2 "general: $D/g.jsonl: found 30 records, but 300000 are wanted"
    [ ! -e "$o" ]
    mix --counts 1,2 -o "$o"
    fails 2 'data mix: --counts: found "1,2", expected 3 numbers, of general, code and maths'
    mix -o "$o"
    fails 2 "data mix: --preset, --counts or --total is missing: how many records of each"
    pesc data mix --general "$D/g.jsonl" --counts 1,0,1 -o "$o"
    fails 2 "data mix: --maths is missing: 1 records of it are wanted"
    mix --counts 1,1,1
    fails 2 "data mix: --output is missing: the file to write"
}

@test "data: an answer that is masked is not trained on" {
    for mark in '"mask": 1' '"train": false' '"weight": 0'; do
        printf '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "bb", %s}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "dd"}]}\n' \
            "$mark" > "$BATS_TEST_TMPDIR/m.jsonl"
        pesc data inspect "$D/model" --data "$BATS_TEST_TMPDIR/m.jsonl" --json
        [ "$status" = 0 ]
        has '"trained":true,"text":"dd'
        refute has '"trained":true,"text":"bb'
    done
}
@test "data: tables, plain text, a byte order mark, {\"data\": [...]}" {
    local t=$BATS_TEST_TMPDIR
    printf 'instruction,output\r\n"hello, ""you""","two\nlines"\r\n' > "$t/a.csv"
    printf 'prompt\tresponse\nhello\tworld\n' > "$t/a.tsv"
    printf 'A first document.\nIts second line.\n\n\nA second one.\n' > "$t/a.txt"
    printf '\xef\xbb\xbf{"version": 2, "data": [{"question": "hello", "answer": "world"}]}' > "$t/a.json"
    pesc data inspect "$D/model" --data "$t/a.csv" "$t/a.tsv" "$t/a.txt" "$t/a.json" -n 9
    [ "$status" = 0 ]
    has '^hello, "you"<\|im_end\|>$'
    has '^⟦two$'
    has '^lines<\|im_end\|>⟧'
    has '^<s>⟦A first document\.$'
    has '^Its second line\.<\|im_end\|>⟧$'
    has '^<s>⟦A second one\.<\|im_end\|>⟧$'
    [ "$(grep -c '^⟦world<|im_end|>⟧$' <<< "$output")" = 2 ]
    pesc data check "$D/model" --data "$t/a.csv" "$t/a.tsv" "$t/a.txt" "$t/a.json" --json
    has '"format":"alpaca"\},.*"format":"prompt"\},.*"format":"text"\},.*"format":"question"\}'
    has '"records":5,"bad":0,'
}

@test "data: content as parts, tools and functions, reasoning" {
    local f=$BATS_TEST_TMPDIR/m.jsonl
    printf '{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, {"role": "tool", "content": "42"}, {"role": "assistant", "content": "c", "reasoning_content": "why"}]}\n' > "$f"
    pesc data inspect "$D/model" --data "$f"
    [ "$status" = 0 ]
    [ -z "$stderr" ]
    [[ $output == *$'user\na\nb<|im_end|>'* ]]
    [[ $output == *$'<|im_start|>tool\n42<|im_end|>'* ]]
    [[ $output == *$'⟦<think>\nwhy\n</think>\n\nc<|im_end|>⟧'* ]]
    pesc data inspect "$D/model" --data "$f" --reasoning drop
    has '^⟦c<\|im_end\|>⟧'
    pesc data inspect "$D/model" --data "$f" --keep-reasoning false
    has '^⟦c<\|im_end\|>⟧'
    pesc data inspect "$D/model" --data "$f" --reasoning mask
    [[ $output == *$'⟦<think>\n⟧why⟦\n</think>\n\nc<|im_end|>⟧'* ]]
    pesc data check "$D/model" --data "$f" --template vicuna
    [ "$status" = 3 ]
    [[ $stderr == *"$f:1: message 2 is from a tool, which the chat format vicuna has no place for: "* ]]
}

@test "data: tools are written by a template that reads them, else left out with a notice" {
    local m=$BATS_TEST_TMPDIR/m f=$BATS_TEST_TMPDIR/t.jsonl
    mkdir "$m"
    cp "$D/tok/tokenizer.json" "$D/tok/tokenizer_config.json" "$m"
    echo '{% for t in tools or [] %}[{{ t.name }}]{% endfor %}{% for m in messages %}{{ m.role }}:{{ m.content }}<|im_end|>{% endfor %}' > "$m/chat_template.jinja"
    echo '{"system":"s","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],"tools":[{"name":"add"}]}' > "$f"
    pesc data inspect "$m" --data "$f"
    [ -z "$stderr" ]
    has '^\[add\]system:s<\|im_end\|>user:a<\|im_end\|>⟦assistant:b<\|im_end\|>⟧$'
    pesc data check "$m" --data "$f" "$f" --template chatml
    [ "$status" = 0 ]
    [ "$stderr" = "pesc: note: $f:1: tools is left out, because the template \"chatml\" has no place for it" ]
    pesc data mix --general "$f" --counts 1,0,0 -o "$BATS_TEST_TMPDIR/mixed.jsonl" -q
    [ "$status" = 0 ]
    grep -q '"tools":\[{"name":"add"}\],"domain":"general"' "$BATS_TEST_TMPDIR/mixed.jsonl"
}

@test "data: a Parquet file is read as the lines of JSON that it was made from" {
    local t=$BATS_TEST_TMPDIR
    for kind in jsonl parquet; do
        pesc data inspect "$D/model" --data "tests/golden/parquet/questions.$kind" --template chatml -q
        [ "$status" = 0 ]
        echo "$output" > "$t/$kind.out"
    done
    grep -q 'It is 2' "$t/parquet.out"
    cmp <(sed 's/parquet//' "$t/parquet.out") <(sed 's/jsonl//' "$t/jsonl.out")
    printf 'PAR1....PAR1' > "$t/d.parquet"
    pesc data check "$D/model" --data "$t/d.parquet"
    fails 3 "$t/d.parquet: is Parquet, but its metadata is longer than the file; the file is cut or damaged"
}

@test "data: compressed files, a directory and the Hugging Face cache are read as the files they hold" {
    local t=$BATS_TEST_TMPDIR from=tests/golden/parquet/questions k
    local hub=$t/hub/datasets--acme--set/snapshots/1
    mkdir -p "$hub/data" "$t/dir/main"
    gzip -c $from.jsonl > "$t/q.jsonl.gz"
    xz -c $from.jsonl > "$t/q.jsonl.xz"
    head -n 2 $from.jsonl | gzip > "$t/dir/main/test-00000-of-00002.jsonl.gz"
    tail -n +3 $from.jsonl | gzip > "$t/dir/main/test-00001-of-00002.jsonl.gz"
    cp $from.parquet "$hub/data/train-00000-of-00001.parquet"
    pesc data inspect "$D/model" --data $from.jsonl -n 5 -q
    [ "$status" = 0 ]
    sed 's/^[^ ]*questions//' <<< "$output" > "$t/expected"
    for k in "$t/q.jsonl.gz" "$t/q.jsonl.xz" "$t/dir:main/test" acme/set; do
        HF_HUB_CACHE=$t/hub pesc data stats "$D/model" --data "$k" --json
        [ "$status" = 0 ]
        sed 's/"path":"[^"]*"/P/' <<< "$output" > "$t/got"
        pesc data stats "$D/model" --data $from.jsonl --json
        diff <(sed 's/"path":"[^"]*"/P/' <<< "$output") "$t/got"
    done
    HF_HUB_CACHE=$t/hub pesc data check "$D/model" --data acme/set:test
    [ "$status" = 3 ]
    [[ $stderr == *"has no data files of the split test (test.jsonl, test-00000-of-00001.parquet and the like); it has data, train-00000-of-00001.parquet; "* ]]
    head -c 30000000 /dev/zero | tr '\0' '\n' | gzip > "$t/bomb.jsonl.gz"
    pesc data check "$D/model" --data "$t/bomb.jsonl.gz"
    [ "$status" = 3 ]
    [[ $stderr == "pesc: $t/bomb.jsonl.gz: unpacks to more than 16777216 bytes, of "*" packed ones; --unpack-ratio N allows N times as many" ]]
    pesc data check "$D/model" --data "$t/bomb.jsonl.gz" --unpack-ratio 2000
    fails 3 "$t/bomb.jsonl.gz: is empty: it holds no record"
}

@test "data: what other programs write is refused with the line that converts it" {
    local t=$BATS_TEST_TMPDIR
    pesc data check "$D/model" --data tests/golden/parquet/brotli.parquet
    fails 3 "tests/golden/parquet/brotli.parquet: is Parquet with columns compressed with Brotli, which is not read; convert it: python3 -c \"import pandas; pandas.read_parquet('tests/golden/parquet/brotli.parquet').to_json('tests/golden/parquet/brotli.parquet.jsonl', orient='records', lines=True)\""
    mkdir "$t/saved"
    echo '{}' > "$t/saved/state.json"
    pesc data check "$D/model" --data "$t/saved"
    fails 3 "$t/saved: is a directory of the Python package datasets; export it: python3 -c \"from datasets import load_from_disk; load_from_disk('$t/saved').to_json('data.jsonl')\""
    printf '{"text": "a"}\n\0\0\0\n' > "$t/nul.jsonl"
    pesc data check "$D/model" --data "$t/nul.jsonl"
    [ "$status" = 3 ]
    [[ $stderr == *"the first: $t/nul.jsonl:2: holds a NUL byte; "* ]]
}

@test "data: what is missing or wrong" {
    pesc data
    fails 2 "data: ACTION is missing; usage: pesc data check|stats|inspect|mix|fetch [MODEL] --data FILE..."
    pesc data chek
    fails 2 'data: found "chek", expected check, stats, inspect, mix or fetch; did you mean check?'
    pesc data check "$D/model" --data "$D/good.jsonl" -o out.jsonl # which has no output of its own
    fails 2 'data check: --output has no effect here; mix: the file to write'
    pesc data stats "$D/model" --data "$D/good.jsonl" --records 2
    fails 2 'data stats: --records has no effect here; inspect: number of records to show'
    pesc data check
    fails 2 "data check: MODEL is missing; usage: pesc data check MODEL --data FILE..."
    pesc data stats "$D/model"
    fails 2 "data stats: --data FILE is missing; usage: pesc data stats MODEL --data FILE..."
    pesc data check "$D/model" --data "$D/g.jsonl" --format alpaka
    fails 2 'format: found "alpaka", expected one of ids, camelidae, messages, sharegpt, alpaca, dolly, metamath, magicoder, question, completion, prompt, text, preference-ids, preference-human, preference-text, preference, labelled-ids, labelled-text, labelled; without it the format is found by looking at the first record'
    pesc data check "$D/model" --data "$D/nothing"
    [ "$status" = 3 ]
    [[ $stderr == "pesc: $D/nothing: "* ]]
    pesc data check "$D/model" --data "$D/good.jsonl" --format nonsense
    [ "$status" = 2 ]
    pesc data check "$D/model" --data "$D/good.jsonl" --template nonsense
    [ "$status" = 2 ]
}

@test "train: a part of the records validates" {
    local t=$BATS_TEST_TMPDIR
    run_lora "$D/g.jsonl" --val-split 0.1 --eval-every 3 -o "$t/r" -q
    [ "$status" = 0 ]
    grep -q '"records": 27' "$t/r/records.json"
    grep -q '"records": 3,' "$t/r/records.json"
    grep -q '^val_split: 0.1$' "$t/r/run.yaml"
    [ -s "$t/r/eval.jsonl" ]
    run_lora "$D/g.jsonl" --val-split 0.2 --eval-every 3 -o "$t/r" --resume --steps 6 -q
    [ "$status" = 2 ]
    [[ $stderr == *"val_split 0.1, now 0.2"* ]]
    run_lora "$D/g.jsonl" --val-split 0.1 --eval-data "$D/g.jsonl" -o "$t/s" -q
    fails 2 "eval_data and val_split are both given; give one of them"
}

@test "train: a mended file is resumed when the user says how" {
    local t=$BATS_TEST_TMPDIR
    cp "$D/g.jsonl" "$t/d.jsonl"
    cd "$t"
    run_lora d.jsonl -o r -q # the paths that a resume compares are absolute
    [ "$status" = 0 ]
    sed -i 's/"g3"/"another"/' "$t/d.jsonl"
    pesc train --resume -c "$t/r/run.yaml" -o "$t/r" --steps 5 -q
    [ "$status" = 2 ]
    [[ $stderr == *"/checkpoint-3: cannot be resumed: the data files have changed since it was saved ($t/d.jsonl had "*" bytes with hash "*" and has "*" with hash "*"); --data-changed restart-epoch starts the epoch again with the new data, --data-changed continue goes on at the same position in it; a new run can begin from it with --init-from" ]]
    cp -r "$t/r" "$t/s"
    pesc train --resume -c "$t/r/run.yaml" -o "$t/r" --steps 5 --data-changed continue
    [ "$status" = 0 ]
    [[ $stderr == *"pesc: note: the data has changed since step 3 ($t/d.jsonl had "*"): epoch 1 continues in the new data"* ]]
    pesc train --resume -c "$t/s/run.yaml" -o "$t/s" --steps 5 --data-changed restart-epoch
    [ "$status" = 0 ]
    [[ $stderr == *"): epoch 1 starts again with the new data"* ]]
    refute grep -q data_changed "$t/s/run.yaml"
    pesc train --resume -c "$t/s/run.yaml" -o "$t/s" --steps 6 # the new data is now the run's own
    [ "$status" = 0 ]
    refute grep -q 'has changed' <<< "$stderr"
}

@test "data: fetch lists every data set of the benchmarks with licence and command" {
    pesc data fetch --json
    [ "$status" = 0 ]
    local sets=$output
    pesc eval --list --json --data-dir "$BATS_TEST_TMPDIR"
    SETS=$sets TASKS=$output TREE=$BATS_TEST_DIRNAME/../.. python3 <<'PY'
import glob, json, os
sets = json.loads(os.environ["SETS"])
assert len({s["name"] for s in sets}) == len(sets) > 15
for s in sets:
    assert all(s[k] for k in ("source", "licence", "command", "used_by")), s
sources = " ".join(s["source"] for s in sets)
for path in glob.glob(os.environ["TREE"] + "/share/tasks/*.json"):
    published = json.load(open(path)).get("published")
    if published:
        name = published.split(" ")[0].replace("huggingface.co/datasets/", "")
        assert name in sources, name
for s in sets:  # where a benchmark looks for its data
    if s["used_by"].startswith("eval"):
        assert "bench/" in s["command"], s
PY
    pesc data fetch gsm8k
    [ "$status" = 0 ]
    has "^    licence  MIT$"
    has "load\('openai/gsm8k', 'main'\)"
    pesc data fetch gsm9k
    fails 2 'data fetch: found "gsm9k", expected one of the names that pesc data fetch lists'
}

@test "data: calls of tools, their results and reasoning in the model's own template" {
    local m=$BATS_TEST_TMPDIR/m f=$BATS_TEST_TMPDIR/c.jsonl
    mkdir "$m"
    cp "$D/tok/tokenizer.json" "$D/tok/tokenizer_config.json" "$m"
    cat > "$m/chat_template.jinja" <<'JINJA'
{%- set ns = namespace(last=-1) -%}
{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}{%- endfor -%}
{%- for m in messages -%}
{{- '<|im_start|>' + m.role + '\n' -}}
{%- if m.reasoning_content and loop.index0 > ns.last -%}{{- '[' + m.reasoning_content + ']' -}}{%- endif -%}
{{- m.content or '' -}}
{%- for c in m.tool_calls or [] -%}{{- c.function.name + (c.function.arguments | tojson) -}}{%- endfor -%}
{{- '<|im_end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
JINJA
    echo '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":null,"reasoning":"why","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":{"x":1,"y":null}}}]},{"role":"tool","tool_call_id":"1","content":"42"},{"role":"assistant","content":"b","thinking":"so"}]}' > "$f"
    pesc data inspect "$m" --data "$f"
    [ -z "$stderr" ]
    has 'a<\|im_end\|><\|im_start\|>assistant$'
    [[ $output == *$'⟦[why]f{"x": 1}<|im_end|>⟧<|im_start|>tool\n42<|im_end|><|im_start|>assistant\n⟦[so]b<|im_end|>⟧'* ]]
    pesc data inspect "$m" --data "$f" --turns last --reasoning mask
    [[ $output == *$'[why]f{"x": 1}<|im_end|><|im_start|>tool\n42<|im_end|><|im_start|>assistant\n⟦[⟧so⟦]b<|im_end|>⟧'* ]]
    pesc data inspect "$m" --data "$f" --turns split --reasoning last
    [[ $output == *$'⟦[why]f{"x": 1}<|im_end|>⟧<|im_start|>user'*$'f{"x": 1}<|im_end|><|im_start|>tool\n42<|im_end|><|im_start|>assistant\n⟦[so]b<|im_end|>⟧'* ]]
    # a question that takes earlier thoughts away: each answer is a sample of its own
    echo '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","thinking":"why"},{"role":"user","content":"c"},{"role":"assistant","content":"d"}]}' > "$f"
    pesc data inspect "$m" --data "$f"
    [[ $stderr == "pesc: note: $f:1: the template writes an answer in another way when messages follow it, so each answer of such a record is a sample of its own, as with --turns split" ]]
    [[ $output == *$'⟦[why]b<|im_end|>⟧<|im_start|>user\na'*$'assistant\nb<|im_end|><|im_start|>user\nc<|im_end|><|im_start|>assistant\n⟦d<|im_end|>⟧'* ]]
    # ShareGPT, and a built-in format that has no place for calls
    echo '{"conversations":[{"from":"human","value":"a"},{"from":"function_call","value":"{\"name\":\"g\",\"arguments\":{}}"},{"from":"observation","value":"7"},{"from":"gpt","value":"b"}]}' > "$f"
    pesc data inspect "$m" --data "$f"
    [[ $output == *$'⟦g{}<|im_end|>⟧<|im_start|>tool\n7<|im_end|>'* ]]
    pesc data check "$m" --data "$f" --template chatml
    [ "$status" = 3 ]
    [[ $stderr == *"$f:1: message 2: tool_calls: the chat format \"chatml\" cannot write calls of tools: "* ]]
    pesc data mix --general "$f" --counts 1,0,0 -o "$BATS_TEST_TMPDIR/mixed.jsonl" -q
    grep -q '"tool_calls":\[{"function":{"name":"g","arguments":{}},"type":"function","id":"call00001"}\]' "$BATS_TEST_TMPDIR/mixed.jsonl"
}
