# The study of ESFT with a budget of a few steps: that it is made, resumed and reported. How good the
# numbers are is the study's own business.
load helper

setup() { T=$BATS_TEST_TMPDIR; }

study() {
    env PESC="$PESC" STUDY="$T/s" REPORT="$T/study.md" EPOCHS=0.08 BASE_EPOCHS=0.03 LIMIT=2 TARGETS=code SEEDS="0 1" \
        METHODS="${1:-lora-r8 esft-token random}" "$BATS_TEST_DIRNAME/../../tools/study_esft.sh" 2> "$T/log"
}

layers() { grep -o '\[[^]]*\]' "$1" | tr -d '[],'; } # a line of ids each

@test "study-esft: a small study runs, resumes and writes its report" {
    study
    local made
    made=$(wc -l < "$T/log") # the mixture; 3 rates, perhaps a fourth, and another seed for 3 methods
    [ "$made" -ge 13 ]
    [ "$made" -le 16 ]
    local number='[0-9.]+ ± [0-9.]+'
    grep -Eq '^\| mixture \| nothing: where all begin \| \| 0 \|' "$T/study.md"
    grep -Eq "^\| lora-r8 \| .* \|  \| 29 \| [0-9]+ \| [0-9.]+\*? \| $number \| $number \| $number \| $number \|\$" "$T/study.md"
    grep -Eq '^\| esft-token - random \| code \| [-+][0-9.]+ (better|worse|\(inside\)) \|' "$T/study.md"
    refute grep -Eq 'esft-token - full|## Reading' "$T/study.md"
    printf '\n## Reading\n\nby hand\n' >> "$T/study.md"
    cp "$T/study.md" "$T/before.md"
    study
    [ ! -s "$T/log" ]
    cmp "$T/before.md" "$T/study.md"
    # random experts: as many a layer as esft-token, none twice, others for another seed
    local token random
    token=$(echo "$T"/s/code-esft-token-seed1-*.experts) random=$(echo "$T"/s/code-random-seed1-*.experts)
    [ "$(layers "$random" | tr -d 0-9)" = "$(layers "$token" | tr -d 0-9)" ]
    layers "$random" | while read -r ids; do [ -z "$(tr ' ' '\n' <<< "$ids" | sort | uniq -d)" ]; done
    refute cmp -s "$random" "$T"/s/code-random-seed0-lr1e-3-*.experts
}

@test "study-esft: an unknown method is refused" {
    run study esft-tokens
    [ "$status" = 2 ]
    [ "$(tail -n 1 "$T/log")" = "study: 'esft-tokens' is no method; see tools/study_esft.sh" ]
}
