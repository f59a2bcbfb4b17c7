load helper

GOLDEN=$BATS_TEST_DIRNAME/../golden

setup_file() {
    make_model
    export BASE=$BATS_TEST_DIRNAME/../../share/base
    export PYTHONDONTWRITEBYTECODE=1
    export PESC
}

property() {
    run python3 "$BATS_TEST_DIRNAME/../serve/properties.py" "${2:-$BASE}" "$1"
    printf '%s\n' "$output"
    [ "$status" = 0 ]
}

@test "serve: hostile requests get the exact status and error code" {
    run python3 "$BATS_TEST_DIRNAME/../serve/hostile.py" "$D/model"
    printf '%s\n' "$output"
    [ "$status" = 0 ]
    has '^[0-9]+ of [0-9]+ requests are answered as expected$'
}

@test "serve: an answer is the same alone, among 16, cached or not" { property same_alone_and_among_others; }
@test "serve: so is one of a model whose layers have states" {
    local common='"hidden_size":24,"intermediate_size":40,"num_hidden_layers":4,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":266,"max_position_embeddings":2048,"initializer_range":0.25,"num_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":16'
    cd "$BATS_TEST_TMPDIR"
    echo "{\"model_type\":\"lfm2_moe\",$common,\"layer_types\":[\"conv\",\"full_attention\",\"conv\",\"conv\"],\"num_dense_layers\":1}" > lfm2_moe.json
    echo "{\"model_type\":\"qwen3_next\",$common,\"shared_expert_intermediate_size\":12,\"head_dim\":8,\"full_attention_interval\":2,\"linear_num_key_heads\":2,\"linear_num_value_heads\":6,\"linear_key_head_dim\":6,\"linear_value_head_dim\":5}" > qwen3_next.json
    for family in lfm2_moe qwen3_next; do
        pesc new $family.json -o $family --tokenizer "$D/tok" --dtype f32 --seed 3
        [ "$status" = 0 ]
        property same_alone_and_among_others $family
    done
}
@test "serve: the events of a stream add up to the whole answer" { property streams_equal_whole_answers; }
@test "serve: a long echo with log-probabilities is streamed whole" { property long_echoes_are_streamed; }
@test "serve: answers are as the tests of other servers expect them" { property answers_as_other_servers; }
@test "serve: requests of llama.cpp's and vLLM's tests are answered as these expect" {
    run python3 "$BATS_TEST_DIRNAME/../serve/suites.py" "$BASE"
    printf '%s\n' "$output"
    [ "$status" = 0 ]
    has '^[0-9]+ of [0-9]+ answers are as expected$'
}
@test "serve: a chat streams its role, its text, its end and its usage" { property chat_streams "$D/model"; }
@test "serve: an echoed prompt has the log-probabilities of its generation" { property scores_echoed_prompts; }
@test "serve: tokens that cut characters leave the text valid" { property characters_stay_whole "$D/model"; }
@test "serve: cached_tokens counts what was not computed" { property counts_what_is_cached; }
@test "serve: a client that leaves frees its pages, waiting or running" { property leaving_frees_pages; }
@test "serve: a slot is free within 100 ms after its client has left" { property slots_are_free_soon; }
@test "serve: a long prompt does not stop running streams" { property long_prompts_do_not_stop_streams; }
@test "serve: a large body does not stop other requests" { property large_bodies_do_not_stop_others; }
@test "serve: the choices of a client that has left are cancelled together" { property many_choices_leave_at_once; }
@test "serve: a full queue is answered 429" { property refuses_what_does_not_fit_the_queue; }
@test "serve: SIGTERM lets requests end and cuts those that do not" { property ends_after_a_signal; }
@test "serve: keys are asked for where there is a key file" { property asks_for_keys "$D/model"; }
@test "serve: CORS headers are sent to listed origins only" { property answers_origins_that_are_listed "$D/model"; }
@test "serve: a head that comes too slowly ends its connection, the first or a later one" { property ends_slow_heads; }
@test "serve: without file descriptors it waits for connections to end" { property waits_without_file_descriptors; }
@test "serve: constrained answers are right" { property constrained_answers_are_right; }
@test "serve: constrained answers are the same among others" { property constrained_answers_are_the_same_among_others; }
@test "serve: wrong constraints are refused" { property wrong_constraints_are_refused; }
@test "serve: hostile constraints cost less than 2 s of CPU each" { property hostile_constraints_cost_little "$D/model"; }
@test "serve: --lenient accepts unknown fields and names them" { property accepts_unknown_fields_if_lenient "$D/model"; }
@test "serve: fields without a use are accepted and named" { property names_fields_without_a_use "$D/model"; }
@test "serve: sampling options, stops, choices and echo are obeyed" { property obeys_options_of_a_request; }
@test "serve: a last message can be continued" { property continues_last_messages; }
@test "serve: experts and gates are reported, and counted" { property reports_routed_experts "$D/model"; }
@test "serve: times are reported as llama.cpp does" { property reports_times; }
@test "serve: a draft model changes no token, and its guesses are counted" { property reports_guesses_of_a_draft; }
@test "serve: a draft model has the same vocabulary" {
    pesc serve "$D/model" --port 0 --draft "$GOLDEN/llama"
    [ "$status" = 2 ]
    [[ $stderr == *'the same vocabulary'* ]]
}
@test "serve: log-probabilities of prompts are reported as vLLM does" { property reports_logprobs_of_prompts "$D/model"; }
@test "serve: calls of tools are made as they are asked for" { property calls_are_made "$D/model"; }
@test "serve: what may be called is chosen" { property calls_are_chosen "$D/model"; }
@test "serve: thoughts are told from content" { property thoughts_are_told "$D/model"; }
@test "serve: /v1/messages answers as Anthropic's interface" { property messages_are_answered "$D/model"; }
@test "serve: /v1/responses answers as OpenAI's, and keeps conversations" { property responses_are_answered "$D/model"; }
@test "serve: responses that are kept belong to their key" { property responses_have_owners "$D/model"; }
@test "serve: embeddings are computed" { property embeddings_are_computed "$D/model"; }
@test "serve: a format of calls must be known" {
    run -2 "$PESC" serve "$D/model" --port 0 --tool-format herms
    has 'tool_format: there is no format "herms" of calls, expected one of .*hermes'
}
@test "serve: chat templates get tools, calls and variables" { property gives_templates_tools_and_variables "$D/model"; }
@test "serve: one key does not see what another asks for, nor shares its cache" { property keys_see_their_own_requests; }
@test "serve: a text of 1 MiB costs less than 2 s of CPU" { property large_texts_are_cheap; }
@test "serve: a line end that is a byte token comes at once" { property line_ends_of_byte_tokens_come_at_once "$D/model"; }
@test "serve: a finished request does not run when its client has the answer" { property finished_requests_do_not_run; }
@test "serve: numbers out of range name their field, and seeds may have 64 bits" { property numbers_out_of_range_name_their_field; }
@test "serve: a body that stops is answered 408, and what is malformed is logged" { property ends_slow_bodies "$D/model"; }
@test "serve: vLLM's figures have the label of their model" { property names_models_as_vllm_does "$D/model"; }
@test "serve: --log-json writes a line of JSON for each request" { property writes_a_log "$D/model"; }

@test "serve: LoRAs under names of their own run in the same batch" {
    run python3 "$BATS_TEST_DIRNAME/../serve/adapters.py" "$GOLDEN/peft/base" "$GOLDEN/peft/adapter"
    printf '%s\n' "$output"
    [ "$status" = 0 ]
}

@test "serve: --lora is NAME=DIR, or one directory for the model itself" {
    pesc serve "$GOLDEN/peft/base" --port 0 --lora "a=$GOLDEN/peft/adapter" --lora "a=$GOLDEN/peft/adapter"
    fails 2 'lora: two models have the name "a"'
    pesc serve "$GOLDEN/peft/base" --port 0 --lora "=x"
    fails 2 'lora: found "=x", expected NAME=DIR'
    pesc serve "$GOLDEN/peft/base" --port 0 --lora a/b --lora c/d
    fails 2 'serve: --lora: found "a/b" and "c/d", expected NAME=DIR, or one DIR for MODEL itself'
}

@test "serve: --lora NAME=RUN takes a run that trained a LoRA on this model, and no other" {
    local T=$BATS_TEST_TMPDIR base=$GOLDEN/peft/base
    printf '%s\n' '{"input_ids": [1, 5, 9, 12, 3], "labels": [-100, 5, 9, 12, 3]}' > "$T/data.jsonl"
    for method in lora full; do
        "$PESC" train "$base" --method $method --data "$T/data.jsonl" -o "$T/$method" --steps 2 --batch 1 --lr 0.05 --seq-len 16 \
            --lora-r 4 --threads 1 -q > /dev/null
    done
    "$PESC" export "$T/lora" --to peft -o "$T/adapter" -q
    run python3 "$BATS_TEST_DIRNAME/../serve/adapters.py" "$base" "$T/adapter" "$T/lora"
    printf '%s\n' "$output"
    [ "$status" = 0 ]
    pesc serve "$base" --port 0 --lora "a=$T/full"
    fails 2 "$T/full/checkpoint-2: the run trained more than a LoRA, so it cannot be served beside its base; serve the run itself as MODEL"
    pesc serve "$GOLDEN/mixtral" --port 0 --lora "a=$T/lora"
    [ "$status" != 0 ]
    [[ $stderr == *"checkpoint-2"*"$GOLDEN/mixtral"* ]]
}

# Two expert patches and a LoRA of the golden model olmoe, under $BATS_TEST_TMPDIR.
make_patches() {
    local olmoe=$GOLDEN/olmoe data=$GOLDEN/esft/olmoe/data.jsonl T=$BATS_TEST_TMPDIR
    echo '{"experts": {"0": [1, 6], "1": [0, 2, 3]}}' > "$T/one.json"
    echo '{"experts": {"0": [], "1": [3, 5]}}' > "$T/two.json"
    for name in one two; do
        pesc train "$olmoe" --method esft --experts-config "$T/$name.json" --data "$data" -o "$T/$name" --steps 3 --batch 2 \
            --lr 0.02 --seq-len 32 --threads 1 -q
        [ "$status" = 0 ]
    done
    pesc train "$olmoe" --method lora --lora-r 4 --data "$data" -o "$T/tuned" --steps 3 --batch 2 --lr 0.05 --seq-len 32 \
        --threads 1 -q
    [ "$status" = 0 ]
    pesc export "$T/tuned" --to peft -o "$T/lora" -q
    [ "$status" = 0 ]
}

@test "serve: expert patches and LoRAs under names of their own run in the same batch" {
    make_patches
    run python3 "$BATS_TEST_DIRNAME/../serve/patches.py" "$GOLDEN/olmoe" "$BATS_TEST_TMPDIR/one" "$BATS_TEST_TMPDIR/two" \
        "$BATS_TEST_TMPDIR/lora"
    printf '%s\n' "$output"
    [ "$status" = 0 ]
}

@test "serve: LoRAs on chosen experts, and patches of experts with biases, run beside the base" {
    local T=$BATS_TEST_TMPDIR f
    echo '{"input_ids":[1,5,9,13,17,21],"labels":[1,5,9,13,17,21]}' > "$T/d.jsonl"
    for f in olmoe gpt_oss; do
        local more= # gpt_oss has a third layer
        [ $f = olmoe ] || more=', "2": []'
        echo '{"experts": {"0": [2, 0], "1": [1]'"$more"'}}' > "$T/a.json"
        echo '{"experts": {"0": [4, 2], "1": [0, 1, 3]'"$more"'}, "non_expert_modules": true}' > "$T/b.json"
        for name in a b; do
            "$PESC" train "$GOLDEN/$f" --method lora --experts-from "$T/$name.json" --lora-r 2 --data "$T/d.jsonl" -o "$T/$f.$name" --steps 3 \
                --lr 0.05 -q > /dev/null
            "$PESC" merge "$T/$f.$name" -o "$T/$f.$name.merged" --check false -q > /dev/null
        done
        run python3 "$BATS_TEST_DIRNAME/../serve/expert_loras.py" "$GOLDEN/$f" "a=$T/$f.a=$T/$f.a.merged" "b=$T/$f.b=$T/$f.b.merged"
        printf '%s\n' "$output"
        [ "$status" = 0 ]
    done
    "$PESC" train "$GOLDEN/gpt_oss" --method esft --experts-config "$T/a.json" --data "$T/d.jsonl" -o "$T/patch" --steps 3 --lr 0.05 -q > /dev/null
    "$PESC" train "$GOLDEN/gpt_oss" --method lora --lora-r 2 --data "$T/d.jsonl" -o "$T/lora" --steps 3 --lr 0.05 -q > /dev/null
    echo '{"experts": {"0": [], "1": [4], "2": [0]}}' > "$T/c.json"
    "$PESC" train "$GOLDEN/gpt_oss" --method esft --experts-config "$T/c.json" --data "$T/d.jsonl" -o "$T/other" --steps 3 --lr 0.05 -q > /dev/null
    run python3 "$BATS_TEST_DIRNAME/../serve/patches.py" "$GOLDEN/gpt_oss" "$T/patch" "$T/other" "$T/lora/latest"
    printf '%s\n' "$output"
    [ "$status" = 0 ]
    pesc serve "$GOLDEN/olmoe" --port 0 --base-dtype nf4 --lora "a=$T/olmoe.a"
    [ "$status" != 0 ]
    [[ $stderr == *"is a LoRA on experts, which $GOLDEN/olmoe holds in nf4; as a model of its own it needs them in --base-dtype bf16 or f32" ]]
}

@test "serve: --patch is NAME=DIR, or one directory for the model itself, and must belong to it" {
    make_patches
    local one=$BATS_TEST_TMPDIR/one
    pesc serve "$GOLDEN/olmoe" --port 0 --lora "a=$BATS_TEST_TMPDIR/lora" --patch "a=$one"
    fails 2 'patch: two models have the name "a"'
    pesc serve "$GOLDEN/olmoe" --port 0 --patch "a="
    fails 2 'patch: found "a=", expected NAME=DIR'
    pesc serve "$GOLDEN/olmoe" --port 0 --patch a/b --patch c/d
    fails 2 'serve: --patch: found "a/b" and "c/d", expected NAME=DIR, or one DIR for MODEL itself'
    pesc serve "$GOLDEN/olmoe" --port 0 --patch "$one" --patch "a=$one"
    fails 2 "$GOLDEN/olmoe: has a patch already, and patches that are models of their own need the base without one"
    pesc serve "$GOLDEN/mixtral" --port 0 --patch "a=$one"
    [ "$status" != 0 ]
    [[ $stderr == *"experts.0: found expert 6, expected 0 to 4" ]]
    pesc serve "$GOLDEN/peft/base" --port 0 --patch "a=$one"
    [ "$status" != 0 ]
    [[ $stderr == *"is a patch for experts, but $GOLDEN/peft/base has none"* ]]
    pesc train "$GOLDEN/qwen2_moe" --method esft --experts-config "$GOLDEN/esft/qwen2_moe-shared/expert_cfg.json" \
        --data "$GOLDEN/esft/olmoe/data.jsonl" -o "$BATS_TEST_TMPDIR/shared" --steps 1 --batch 2 --seq-len 32 --threads 1 -q
    [ "$status" = 0 ]
    pesc serve "$GOLDEN/qwen2_moe" --port 0 --patch "a=$BATS_TEST_TMPDIR/shared"
    [ "$status" != 0 ]
    [[ $stderr == *"replaces shared experts, which all requests of a batch share; such a patch can only be applied to the whole model"* ]]
}

@test "serve: an address that others reach needs a key" {
    pesc serve "$D/model" --host 0.0.0.0 --port 0
    fails 2 "0.0.0.0 is an address that other machines can reach: give --api-key-file, or listen on 127.0.0.1"
}

@test "serve: a key file must have keys of 8 bytes" {
    printf '\n' > "$BATS_TEST_TMPDIR/none"
    printf 'short\n' > "$BATS_TEST_TMPDIR/short"
    pesc serve "$D/model" --port 0 --api-key-file "$BATS_TEST_TMPDIR/none"
    fails 3 "$BATS_TEST_TMPDIR/none: found no key, expected one a line"
    pesc serve "$D/model" --port 0 --api-key-file "$BATS_TEST_TMPDIR/short"
    fails 3 "$BATS_TEST_TMPDIR/short: key 1 has 5 bytes, expected at least 8"
}

@test "serve: a name has no control characters, and a context above the model's is said" {
    pesc serve "$GOLDEN/peft/base" --port 0 --lora "$(printf 'a\tb')=$GOLDEN/peft/adapter"
    fails 2 'lora: found the name "a\x09b", expected at most 255 bytes of UTF-8 without control characters'
    pesc serve "$D/model" --port 0 --served-name "$(printf 'a\nb')"
    fails 2 'served_name: found the name "a\x0Ab", expected at most 255 bytes of UTF-8 without control characters'
    timeout 1 "$PESC" serve "$D/model" --port 0 --context 4096 2> "$BATS_TEST_TMPDIR/said" || true
    grep -q 'context: 4096 tokens are more than the 128 that the model was made for' "$BATS_TEST_TMPDIR/said"
}

@test "serve: a host must be an address, a chat format known" {
    pesc serve "$D/model" --host nowhere.invalid --port 0
    [ "$status" = 2 ]
    [[ $stderr == 'pesc: host: found "nowhere.invalid", expected an address such as 127.0.0.1'* ]]
    pesc serve "$D/model" --port 0 --chat-format none-such
    [ "$status" = 2 ]
    [[ $stderr == 'pesc: chat_format: that chat format is not known; name one of: '* ]]
}

@test "serve: clients that leave, dribble or send garbage harm no other" {
    run python3 "$BATS_TEST_DIRNAME/../serve/storm.py" "$BASE" 5
    printf '%s\n' "$output"
    [ "$status" = 0 ]
}

@test "serve: the page works in a browser, and hostile texts stay texts" {
    if ! python3 -c 'import sys; sys.path.insert(0, sys.argv[1]); import browser; sys.exit(not browser.PROGRAM)' "$BATS_TEST_DIRNAME/../serve"; then
        skip "Chromium is not installed"
    fi
    run python3 "$BATS_TEST_DIRNAME/../serve/page.py" "$D/model"
    printf '%s\n' "$output"
    [ "$status" = 0 ]
    has '^the page works, and [0-9]+ hostile texts stay texts$'
}

# A server on a free port whose address is $URL, until the end of the test.
begin_server() { # model option...
    "$PESC" serve "$@" --port 0 > /dev/null 2> "$BATS_TEST_TMPDIR/server" &
    SERVER=$!
    while [ ! -s "$BATS_TEST_TMPDIR/server" ]; do
        kill -0 "$SERVER"
        sleep 0.05
    done
    URL=$(sed -n 's/^pesc: listening on //p' "$BATS_TEST_TMPDIR/server")
}

@test "bench serve: measures throughput and times of any such server" {
    begin_server "$BASE"
    pesc bench serve "$URL" --requests 6 --streams 3 --prompt-tokens 20 --decode-tokens 5 --json
    kill "$SERVER"
    [ "$status" = 0 ]
    has '"requests":6,"failed":0,"tokens":30,'
    has '"first_token":\{"p50_ms":[0-9.]+,"p90_ms":[0-9.]+,"p99_ms":[0-9.]+\},"inter_token":\{'
}

@test "bench serve: the server may listen on an IPv6 address" {
    python3 -c 'import socket; socket.socket(socket.AF_INET6).bind(("::1", 0))' || skip "there is no ::1"
    begin_server "$BASE" --host ::1
    pesc bench serve "$URL" --requests 2 --prompt-tokens 20 --decode-tokens 5 --json -q
    kill "$SERVER"
    [ "$status" = 0 ]
    has '"requests":2,"failed":0,"tokens":10,'
}

@test "bench serve: requests come at random times with --rate" {
    begin_server "$BASE"
    pesc bench serve "$URL/v1/" --requests 6 --rate 50 --prompt-tokens 20 --decode-tokens 5
    kill "$SERVER"
    [ "$status" = 0 ]
    has '^requests       6, 0 failed, in '
    has '^throughput     [0-9.]+ tokens/s$'
}

@test "bench serve: requests that all fail are an error" {
    begin_server "$BASE"
    pesc bench serve "$URL" --requests 2 --prompt-tokens 5000 -q
    kill "$SERVER"
    [ "$status" = 3 ]
    [[ $stderr == "pesc: all 2 requests failed, the first with status 400: "*5000* ]]
}
@test "bench serve: prompts are within a small vocabulary" {
    begin_server "$D/model"
    pesc bench serve "$URL" --requests 4 --prompt-tokens 40 --decode-tokens 5 --json
    kill "$SERVER"
    [ "$status" = 0 ]
    has '"requests":4,"failed":0,"tokens":20,'
}

@test "bench serve: a URL is needed, and must be one" {
    pesc bench serve
    fails 2 "bench serve: expected the URL of a server"
    pesc bench serve ftp://localhost
    fails 2 'bench serve: found "ftp://localhost", expected http://HOST:PORT'
    local url
    for url in 'http://' 'http://[::1' 'http://[]:80' 'http://a:' 'http://[::1]x' "http://$(printf 'a%.0s' {1..300})"; do
        pesc bench serve "$url"
        fails 2 "bench serve: found \"${url:0:100}\", expected http://HOST:PORT"
    done
    pesc bench serve http://127.0.0.1:1/v1 # nothing listens there
    fails 3 '127.0.0.1, port 1: cannot connect: Connection refused'
    OPENAI_API_KEY=$(printf 'k%.0s' {1..2000}) pesc bench serve http://127.0.0.1:1
    fails 2 'bench serve: OPENAI_API_KEY is too long'
    pesc bench "$BASE" "$BASE"
    fails 2 "bench: found two models, expected one"
}
