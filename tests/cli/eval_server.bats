# `pesc eval` of models behind servers, and judges: tests/serve/evals.py has a function for each.
load helper

setup_file() {
    make_model
    export BASE=$BATS_TEST_DIRNAME/../../share/base
    export PYTHONDONTWRITEBYTECODE=1
    export PESC
}

eval_of() { # function [model]
    run python3 "$BATS_TEST_DIRNAME/../serve/evals.py" "${2:-$BASE}" "$1"
    printf '%s\n' "$output"
    [ "$status" = 0 ]
}

@test "eval of a server: what pesc serves is scored as the model is" { eval_of same_as_the_model; }
@test "eval of a server: random bytes for answers are scored the same" { eval_of same_as_the_model "$D/model"; }
@test "eval of a server: conversations are scored the same" { eval_of same_as_the_model_in_a_chat "$D/model"; }
@test "eval of a server: the requests, the key, and how many at a time" { eval_of asks_what_a_server_takes; }
@test "eval of a server: an interrupted evaluation goes on" { eval_of goes_on_where_it_was; }
@test "eval of a server: a busy or broken server is asked again" { eval_of asks_again; }
@test "eval of a server: wrong answers are one sentence" { eval_of says_what_is_wrong; }
@test "eval of a server: of several models one is named" { eval_of models_are_told_apart; }
@test "eval of a server: multiple choice needs log-probabilities" { eval_of choices_need_logprobs; }
@test "eval of a server: log-probabilities as llama.cpp writes them" { eval_of llama_cpp_shape; }
@test "eval of a server: an echo without BOS is refused" { eval_of echoes_without_bos; }
@test "eval of a server: options of models that are opened are refused" { eval_of options_of_models_are_refused; }
@test "eval of a server: calls of tools" { eval_of calls_of_tools; }
@test "judge: both orders, verdicts in the samples, unreadable ones" { eval_of judges_in_both_orders; }
@test "judge: of a model that is opened here" { eval_of judges_a_model_that_is_open; }
