"""The C API as ctypes: the library, its structs and the prototypes of its functions.

Structs of options are not declared here: _options.py lays them out by the library's own table. The tests
compare every struct and prototype of this file with the header (tests/python/test_pesc.py)."""

import ctypes
import os
import types
from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32,
                    c_int64, c_size_t, c_uint, c_uint64, c_void_p)

# ---- the library

SONAME = "libpesc.so.0"


def _load():
    named = os.environ.get("PESC_LIB")
    if named:
        return ctypes.CDLL(named)
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", SONAME)  # of a wheel
    if os.path.exists(own):
        return ctypes.CDLL(own)
    for place in (SONAME, "/usr/local/lib/" + SONAME):  # the second: installed, but ldconfig was not run
        try:
            return ctypes.CDLL(place)
        except OSError:
            pass
    raise ImportError(f"{SONAME} was not found; install pesc (make install, or the Debian package libpesc0), "
                      "or set PESC_LIB to the path of the library")


# ---- failures

STATUSES = ("OK", "USAGE", "IO", "FORMAT", "SHAPE", "UNSUPPORTED", "DISK", "NOMEM", "DEVICE", "NUMERIC", "STOPPED",
            "LOST")


class Error(Exception):
    """A call of the library failed. str(error) is the library's sentence, error.status its kind ("USAGE",
    "IO", "FORMAT", ...; see docs/api)."""

    def __init__(self, status, sentence):
        super().__init__(sentence)
        self.status = status


def _raise_failure(status, function, arguments):
    if status:
        raise Error(STATUSES[status], lib.pesc_last_error().decode())
    return arguments


# ---- structs

class Sized(Structure):
    """A struct that begins with its size, as PESC_INIT makes it."""

    def __init__(self):
        super().__init__()
        self.size = ctypes.sizeof(self)


def record(struct):
    """The fields of a struct as a namespace, with texts as str."""
    fields = {name: getattr(struct, name) for name, _ in struct._fields_ if name != "size"}
    return types.SimpleNamespace(**{k: v.decode() if isinstance(v, bytes) else v for k, v in fields.items()})


def _fields(*groups):
    return [(name, kind) for kind, names in groups for name in names.split()]


NOTICE = CFUNCTYPE(None, c_void_p, c_char_p)
PROGRESS = CFUNCTYPE(None, c_void_p, c_char_p, c_uint64, c_uint64)
EMIT = CFUNCTYPE(c_bool, c_void_p, c_void_p, c_size_t)
LOG = CFUNCTYPE(None, c_void_p, c_char_p)


class pesc_events(Sized):
    _fields_ = [("size", c_size_t), ("ud", c_void_p), ("notice", NOTICE), ("progress", PROGRESS)]


class pesc_model_info(Sized):
    _fields_ = _fields(
        (c_size_t, "size"), (c_char * 32, "family format"), (c_char * 16, "dtype"),
        (c_int64, "dim layers heads kv_heads head_dim ffn_dim vocab context"),
        (c_int64, "experts top_k adapter_dim shared_experts expert_dim"), (c_double, "adapter_scale"),
        (c_uint64, "params_total params_activated params_trainable n_tensors n_files bytes"),
        (c_char * 32, "chat tokenizer"), (c_int64, "sparse_layers"), (c_char * 24, "adapter_act"), (c_char * 16, "router"),
        (c_int64, "ffn_experts ffn_top_k"))


class pesc_logit_check(Sized):
    _fields_ = _fields((c_size_t, "size"), (c_uint64, "logits differ"), (c_double, "max_diff max_logit error kl"),
                       (c_uint64, "positions greedy_same beyond_rounding"))


class pesc_generation(Sized):
    _fields_ = _fields((c_size_t, "size"), (POINTER(c_int32), "ids"), (c_size_t, "n_ids"), (POINTER(c_char), "text"),
                       (c_size_t, "n_text n_prompt"), (c_char * 16, "finish"),
                       (c_double, "prefill_seconds decode_seconds"), (c_size_t, "n_guessed n_guesses_kept"), (c_char_p, "message"))


class pesc_perplexity_report(Sized):
    _fields_ = _fields((c_size_t, "size"), (c_uint64, "tokens"), (c_double, "loss perplexity seconds"))


class pesc_preference(Structure):
    _fields_ = _fields((c_int64, "answers"), (c_double, "reward_chosen reward_rejected margin accuracy"),
                       (c_double, "logp_chosen logp_rejected kl"))


class pesc_step(Sized):
    _fields_ = _fields(
        (c_size_t, "size"), (c_int64, "step steps"), (c_double, "epoch"), (c_int64, "tokens"),
        (c_double, "loss ce aux grad_norm lr tok_s utilisation"), (c_uint64, "mem_bytes mem_total"),
        (c_double, "expert_entropy"), (c_int64, "dead_experts"), (c_double, "eval_loss"), (c_bool, "skipped saved"),
        (c_double, "seconds_left worst_entropy"), (c_int64, "worst_layer"), (c_double, "comm_seconds comm_hidden step_seconds eval_seconds save_seconds"),
        (pesc_preference, "preference eval_preference"))


class pesc_train_info(Sized):
    _fields_ = _fields(
        (c_size_t, "size"), (c_char * 16, "method optimizer"), (c_uint64, "params_trained params_total"),
        (c_uint64, "records first_step"), (c_int64, "steps micro_tokens kept_layers"),
        (c_uint64, "bytes_model bytes_activations bytes_trained bytes_total over_length"), (c_char * 32, "checkpoint"),
        (c_uint64, "bytes_paged bytes_sharded bytes_shard"), (c_char * 16, "routers"), (c_uint64, "bytes_streamed"))


class pesc_message(Structure):
    _fields_ = [("role", c_char_p), ("content", c_char_p)]


class pesc_option(Structure):
    _fields_ = _fields((c_char_p, "key"), (c_int, "kind of"), (c_size_t, "at count_at"), (c_char_p, "fallback"),
                       (c_uint, "flags"), (c_char_p, "commands help values"), (c_double, "min max"))


class pesc_eval_sample(Structure):
    _fields_ = _fields((c_uint64, "record"), (c_char_p, "domain prompt expected answer"), (c_bool, "correct"))


EACH = CFUNCTYPE(None, c_void_p, POINTER(pesc_eval_sample))


class pesc_eval_score(Structure):
    _fields_ = _fields((c_char_p, "domain"), (c_uint64, "records tokens"), (c_double, "loss"), (c_uint64, "asked correct"),
                       (c_double, "exact_match exact_match_stderr"))


class pesc_eval_report(Sized):
    _fields_ = _fields((c_size_t, "size"), (pesc_eval_score, "all"), (POINTER(pesc_eval_score), "domains"), (c_size_t, "n_domains"),
                       (c_uint64, "too_long generated"), (c_double, "seconds"))


class pesc_benchmark_score(Structure):
    _fields_ = _fields((c_char_p, "task metric filter group"), (c_bool, "is_group"), (c_int64, "shots"), (c_bool, "reference"),
                       (c_double, "mean error full"), (c_uint64, "n"), (POINTER(c_double), "each"))


class pesc_benchmark_report(Sized):
    _fields_ = _fields((c_size_t, "size"), (POINTER(pesc_benchmark_score), "scores"), (c_size_t, "n_scores"), (c_char_p, "json"),
                       (c_uint64, "tokens_requested tokens_computed"), (c_double, "seconds"), (c_void_p, "owner"))


class pesc_routes_domain(Structure):
    _fields_ = _fields((c_char_p, "name"), (c_uint64, "records tokens"))


class pesc_routes_token(Structure):
    _fields_ = _fields((c_int32, "id"), (c_uint64, "seen chosen"), (c_double, "lift"))


class pesc_routes_report(Sized):
    _fields_ = _fields(
        (c_size_t, "size"), (POINTER(pesc_routes_domain), "domains"), (POINTER(c_int64), "layers"),
        (c_size_t, "n_domains n_layers experts top_k"), (POINTER(c_double), "share difference"), (POINTER(c_uint64), "counts"),
        (POINTER(c_double), "gate slot_gate load entropy chance p_value"), (POINTER(pesc_routes_token), "tokens"), (c_size_t, "n_tokens"))


class pesc_esft_score_report(Sized):
    _fields_ = _fields((c_size_t, "size"), (c_uint64, "tokens records"), (c_int64, "layers experts top_k"), (c_double, "gate_sum seconds"))


class pesc_esft_choice(Sized):
    _fields_ = _fields(
        (c_size_t, "size n_layers n_experts"), (POINTER(c_int32), "layers"), (POINTER(c_double), "scores"), (POINTER(c_bool), "chosen"),
        (POINTER(c_int32), "order counts"), (c_int64, "total"), (c_bool, "shared_experts non_expert_modules"))


STRUCTS = (pesc_events, pesc_model_info, pesc_logit_check, pesc_generation, pesc_perplexity_report, pesc_preference, pesc_step,
           pesc_train_info, pesc_message, pesc_option, pesc_eval_sample, pesc_eval_score, pesc_eval_report, pesc_benchmark_score,
           pesc_benchmark_report, pesc_routes_domain, pesc_routes_token, pesc_routes_report, pesc_esft_score_report,
           pesc_esft_choice)

# ---- constants

ENUMS = {
    **{"PESC_" + name: value for value, name in enumerate(STATUSES)},
    "PESC_ADD_SPECIAL": 1, "PESC_PARSE_SPECIAL": 2, "PESC_SKIP_SPECIAL": 4,
    "PESC_OPTIONS_LOAD": 0, "PESC_OPTIONS_CRAFT": 1, "PESC_OPTIONS_EXPORT": 2, "PESC_OPTIONS_SAMPLE": 3, "PESC_OPTIONS_DATA": 4,
    "PESC_OPTIONS_TRAIN": 5, "PESC_OPTIONS_EVAL": 6, "PESC_OPTIONS_ROUTES": 7, "PESC_OPTIONS_ESFT_SCORE": 8,
    "PESC_OPTIONS_ESFT_SELECT": 9, "PESC_OPTIONS_BENCHMARK": 11, "PESC_OPTIONS_SERVE": 12,
    "PESC_OPTION_TEXT": 0, "PESC_OPTION_BOOL": 8, "PESC_OPTION_LIST": 9,
}

# ---- functions: what they return and take. STATUS raises Error unless it is PESC_OK.

STATUS = object()
HANDLE = c_void_p
OUT_HANDLE = POINTER(c_void_p)
OUT_SIZE = POINTER(c_size_t)
IDS = POINTER(c_int32)

FUNCTIONS = {
    "pesc_version": (c_char_p, ()),
    "pesc_last_error": (c_char_p, ()),
    "pesc_device_open": (STATUS, (OUT_HANDLE, c_char_p)),
    "pesc_device_name": (c_char_p, (HANDLE,)),
    "pesc_device_events": (STATUS, (HANDLE, POINTER(pesc_events))),
    "pesc_device_close": (None, (HANDLE,)),
    "pesc_model_open": (STATUS, (OUT_HANDLE, HANDLE, c_char_p, c_void_p)),
    "pesc_model_describe": (STATUS, (HANDLE, POINTER(pesc_model_info))),
    "pesc_model_tokenizer": (c_void_p, (HANDLE,)),
    "pesc_model_chat_format": (c_char_p, (HANDLE,)),
    "pesc_model_close": (None, (HANDLE,)),
    "pesc_info": (STATUS, (c_char_p, c_char_p, POINTER(pesc_events), POINTER(pesc_model_info))),
    "pesc_craft": (STATUS, (HANDLE, c_char_p, c_char_p, c_void_p, POINTER(pesc_logit_check))),
    "pesc_tokenizer_open": (STATUS, (OUT_HANDLE, c_char_p, POINTER(pesc_events))),
    "pesc_tokenizer_close": (None, (HANDLE,)),
    "pesc_vocab_size": (c_int64, (HANDLE,)),
    "pesc_tokenize": (STATUS, (HANDLE, c_char_p, c_size_t, c_uint, IDS, c_size_t, OUT_SIZE)),
    "pesc_detokenize": (STATUS, (HANDLE, IDS, c_size_t, c_uint, c_char_p, c_size_t, OUT_SIZE)),
    "pesc_chat_tokenize": (STATUS, (HANDLE, c_char_p, POINTER(pesc_message), c_size_t, IDS, c_size_t, OUT_SIZE)),
    "pesc_chat_stops": (POINTER(c_char_p), (c_char_p, OUT_SIZE)),
    "pesc_model_chat_stops": (POINTER(c_char_p), (HANDLE, OUT_SIZE)),
    "pesc_session_open": (STATUS, (OUT_HANDLE, HANDLE, c_int32)),
    "pesc_session_reset": (None, (HANDLE,)),
    "pesc_session_complete": (STATUS, (HANDLE, IDS, c_size_t, c_void_p, EMIT, c_void_p, POINTER(pesc_generation))),
    "pesc_session_close": (None, (HANDLE,)),
    "pesc_generation_free": (None, (POINTER(pesc_generation),)),
    "pesc_logits": (STATUS, (HANDLE, IDS, c_size_t, POINTER(c_float))),
    "pesc_perplexity": (STATUS, (HANDLE, c_char_p, c_size_t, c_int32, POINTER(pesc_perplexity_report))),
    "pesc_train_preset": (STATUS, (c_void_p, c_char_p)),
    "pesc_train_load": (STATUS, (c_void_p, c_void_p)),
    "pesc_trainer_open": (STATUS, (OUT_HANDLE, HANDLE, c_void_p)),
    "pesc_trainer_describe": (STATUS, (HANDLE, POINTER(pesc_train_info))),
    "pesc_trainer_done": (c_bool, (HANDLE,)),
    "pesc_trainer_step": (STATUS, (HANDLE, POINTER(pesc_step))),
    "pesc_trainer_save": (STATUS, (HANDLE,)),
    "pesc_trainer_close": (None, (HANDLE,)),
    "pesc_model_patch": (STATUS, (HANDLE, c_char_p)),
    "pesc_model_unpatch": (STATUS, (HANDLE,)),
    "pesc_merge": (STATUS, (HANDLE, c_char_p, c_char_p, c_void_p, POINTER(pesc_logit_check))),
    "pesc_export": (STATUS, (HANDLE, c_char_p, c_char_p, c_char_p, c_void_p, POINTER(pesc_logit_check))),
    "pesc_data_open": (STATUS, (OUT_HANDLE, c_char_p, c_void_p, POINTER(pesc_events))),
    "pesc_data_close": (None, (HANDLE,)),
    "pesc_eval": (STATUS, (HANDLE, c_char_p, c_void_p, POINTER(pesc_eval_report))),
    "pesc_eval_free": (None, (POINTER(pesc_eval_report),)),
    "pesc_benchmark_known": (c_bool, (c_char_p,)),
    "pesc_benchmark": (STATUS, (HANDLE, c_char_p, c_void_p, POINTER(pesc_benchmark_report))),
    "pesc_benchmark_free": (None, (POINTER(pesc_benchmark_report),)),
    "pesc_routes": (STATUS, (HANDLE, c_void_p, POINTER(pesc_routes_report))),
    "pesc_routes_free": (None, (POINTER(pesc_routes_report),)),
    "pesc_esft_score": (STATUS, (HANDLE, HANDLE, c_char_p, c_void_p, POINTER(pesc_esft_score_report))),
    "pesc_esft_select": (STATUS, (c_char_p, c_void_p, POINTER(pesc_events), POINTER(pesc_esft_choice))),
    "pesc_esft_choice_free": (None, (POINTER(pesc_esft_choice),)),
    "pesc_esft_write": (STATUS, (POINTER(pesc_esft_choice), c_char_p)),
    "pesc_esft_apply": (STATUS, (HANDLE, c_char_p, c_char_p, c_char_p)),
    "pesc_server_open": (STATUS, (OUT_HANDLE, HANDLE, c_void_p)),
    "pesc_server_port": (c_int32, (HANDLE,)),
    "pesc_server_run": (STATUS, (HANDLE,)),
    "pesc_server_stop": (None, (HANDLE,)),
    "pesc_server_close": (None, (HANDLE,)),
    "pesc_option_rows": (POINTER(pesc_option), (OUT_SIZE,)),
    "pesc_options_fill": (None, (c_int, c_void_p, c_size_t)),
    "pesc_option_set": (STATUS, (POINTER(pesc_option), c_void_p, c_char_p, c_char_p)),
}


def _bind(library):
    for name, (returned, taken) in FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes = taken
        function.restype = c_int if returned is STATUS else returned
        if returned is STATUS:
            function.errcheck = _raise_failure
    return library


lib = _bind(_load())
