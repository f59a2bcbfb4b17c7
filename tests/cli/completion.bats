load helper

# What the completion offers for the words of a command line, the last of them incomplete.
offers() { # words
    bash -c '
        PATH=$(dirname "$0"):$PATH
        . <(pesc help --completion bash)
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _pesc
        printf "%s\n" "${COMPREPLY[@]}"' "$(realpath "$PESC")" "$@"
}
@test "completion: commands" {
    run offers pesc tra
    [ "$output" = train ]
    run offers pesc ""
    [[ $'\n'$output$'\n' == *$'\n'generate$'\n'* ]]
}

@test "completion: options and their choices" {
    run offers pesc train --lora-
    [[ $'\n'$output$'\n' == *$'\n'--lora-r$'\n'* ]]
    run offers pesc train --optimizer a
    [ "$output" = $'adamw\nadamw8' ]
    run offers pesc train --optimizer = adamw8 # as bash divides --optimizer=adamw8
    [ "$output" = adamw8 ]
    run offers pesc generate run --device ""
    [ "$output" = $'auto\ncpu\ncuda' ]
    run offers pesc train --keep ""
    [ "$output" = auto ]
}

@test "completion: names of tasks, GPUs and data sets" {
    run offers pesc eval base --tasks minerva_math_a
    [ "$output" = minerva_math_algebra ]
    run offers pesc eval base --tasks pap
    [ "$output" = paper12 ]
    run offers pesc plan base --gpu h
    [ "$output" = $'h200\nh100' ]
    run offers pesc data fetch wino
    [ "$output" = winogrande ]
    cd "$BATS_TEST_TMPDIR"
    touch my.jsonl
    run offers pesc eval base --tasks my
    [ "$output" = my.jsonl ]
}

@test "completion: actions, topics and files" {
    run offers pesc data st
    [ "$output" = stats ]
    run offers pesc esft ""
    [ "$output" = $'score\nselect\napply\nunapply\nprune' ]
    run offers pesc init q
    [ "$output" = $'qlora-pesc\nqlora' ]
    run offers pesc help com
    [ "$output" = compare ]
    cd "$BATS_TEST_TMPDIR"
    touch train.jsonl
    run offers pesc train --data tr
    [ "$output" = train.jsonl ]
}
