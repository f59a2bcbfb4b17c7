#!/usr/bin/env python3
"""What `pesc export --to gguf` writes, opened by llama.cpp (llama-cpp-python).

    tools/conformance/gguf_llama.py [FOLDER...]

Without any, the golden models of every family that llama.cpp has, and new ones with wider rows or
what llama.cpp demands of a family: F32 files must give transformers' logits (logits.npy, where
there are any), the other types the logits that pesc computes of the same file, within llama.cpp's
rounding (it rounds activations to 8 bits where weights are quantised).
The rounding error of pesc's block formats is compared with that of llama.cpp's own quantiser."""
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.pop(0)  # tokenizers.py in this folder hides the library of that name
import gguf
import llama_cpp
import numpy as np
import safetensors.numpy

PESC = os.environ.get("PESC", str(ROOT / "build/pesc"))
FOLDERS = ["llama", "llama-square", "llama3", "yi", "mistral", "qwen2", "qwen3", "mixtral",
           "qwen3_moe", "olmoe", "granite", "granitemoe", "granitemoehybrid-dense", "glm4", "glm4_moe", "minimax_m2", "deepseek", "deepseek_v3",
           "ministral3", "qwen", "gemma4", "gemma4-moe"]
WIDE = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 64}
# What llama.cpp demands of delta nets: keys as wide as values, layers with attention at an interval; it norms keys with rms_norm_eps.
DELTA = {"attention_bias": False, "rms_norm_eps": 1e-6, "linear_value_head_dim": 16, "linear_key_head_dim": 16, "head_dim": 16,
         "layer_types": ["linear_attention"] * 3 + ["full_attention"]}
# llama.cpp loads DeepSeek without q_lora_rank only with 27 layers, and Qwen's mixtures without plain layers.
NEW = [("llama", WIDE), ("qwen3", WIDE), ("mixtral", WIDE),
       ("qwen2_moe", {**WIDE, "mlp_only_layers": [], "decoder_sparse_step": 1, "moe_intermediate_size": 256,
                      "shared_expert_intermediate_size": 256}),
       ("qwen3_moe", {**WIDE, "moe_intermediate_size": 256}),
       ("olmoe", {**WIDE, "num_key_value_heads": 4, "intermediate_size": 256}),
       ("deepseek_v2", {"q_lora_rank": 24}), ("deepseek_v2-yarn", {"q_lora_rank": 24}),
       ("deepseek_v2", {"num_hidden_layers": 27}),
       # without biases, windows or widths that llama.cpp does not have in these families
       ("seed_oss", {"attention_out_bias": False, "mlp_bias": False, "head_dim": 12}), ("olmo2", WIDE),
       ("hunyuan_v1_dense", {"attention_bias": False, "head_dim": 12}), ("hunyuan_v1_moe", {"attention_bias": False, "head_dim": 12}),
       ("exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 3, "head_dim": 12}), ("phi3", {"sliding_window": None}),
       ("gpt_oss", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "head_dim": 12}), ("ernie4_5", {"use_bias": False, "head_dim": 12}),
       ("smollm3", {"no_rope_layers": [1, 1, 1], "attention_bias": False, "mlp_bias": False, "use_sliding_window": False, "sliding_window": None,
                    "layer_types": ["full_attention"] * 3, "head_dim": 16}),
       ("ernie4_5_moe", {"moe_layer_end_index": -1, "moe_norm_min": 1e-12, "head_dim": 12}), ("gemma2", {"query_pre_attn_scalar": 12, "head_dim": 12}),
       ("gemma3", {"query_pre_attn_scalar": 12, "layer_types": ["sliding_attention"] * 3, "head_dim": 12}),
       # the last two layers with keys of their own are the ones whose keys llama.cpp shares
       ("gemma4-shared", {"num_kv_shared_layers": 2, "head_dim": 12}),
       ("afmoe", {"num_hidden_layers": 4, "global_attn_every_n_layers": 4, "head_dim": 12, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]}),
       ("lfm2", {"conv_bias": False}), ("lfm2_moe", {"routed_scaling_factor": 1.0, "num_dense_layers": 1}),
       ("lfm2_moe", {"routed_scaling_factor": 1.0, "layer_types": ["conv", "full_attention", "full_attention"]}),
       ("qwen3_5", DELTA), ("qwen3_5", {**DELTA, "linear_num_value_heads": 2}),
       ("qwen3_5", {**DELTA, "linear_num_value_heads": 6, "layer_types": ["full_attention", "linear_attention", "linear_attention", "full_attention"]}),
       ("qwen3_5_moe", {**DELTA, "num_hidden_layers": 4}), ("qwen3_next", {**DELTA, "norm_topk_prob": True, "mlp_only_layers": []})]
# Relative error of the logits, by type: sums in another order; weights of 16 bits; activations of 8.
LIMITS = {"f32": 1e-3, "f16": 2e-2, "bf16": 3e-2, "q8_0": 0.15, "q4_0": 0.15, "q4_k": 0.15, "q6_k": 0.15}
# llama.cpp rotates with YaRN by other roundings; pesc's logits are transformers'.
YARN = 3e-3
LINES = ["Hello, world! It's 2024, isn't it?", "  leading and   inner blanks \n\n and lines\t", "x = foo(1234, 'bar');  // ok",
         "Straße naïve café", "你好，世界。 こんにちは 안녕하세요", "emoji 😀👍🏽 done", "I'LL YOU'RE 12345678 3.14159"]
failed = 0


def report(what, ok, text):
    global failed
    failed += not ok
    print(f"{'ok  ' if ok else 'FAIL'} {what:28} {text}", flush=True)


def logits_of(path, ids, lora=None):
    """llama.cpp's, of every position of one sequence."""
    model = llama_cpp.Llama(str(path), lora_path=lora and str(lora), n_ctx=max(64, len(ids)), n_batch=512, logits_all=True,
                            verbose=False, flash_attn=False, type_k=0, type_v=0)
    model.eval(ids)
    out = np.array(model.scores[:len(ids)], np.float32)
    model.close()
    return out


def export(folder, out, kind):
    subprocess.run([PESC, "export", str(folder), "--to", "gguf", "-o", str(out), "--dtype", kind,
                    "--overwrite", "-q"], check=True, capture_output=True, text=True)


def pesc_logits(model, ids, temp):
    (temp / "ids.json").write_text(json.dumps(ids))
    subprocess.run([PESC, "logits", str(model), "--ids", str(temp / "ids.json"), "-o",
                    str(temp / "out.npy"), "-q"], check=True)
    return np.load(temp / "out.npy").reshape(len(ids), -1)


def distance(got, want):
    """Of whole vectors, around their means, the median over positions: near ties of a router change
    single positions much."""
    a, b = (x - x.mean(-1, keepdims=True) for x in (got, want))
    return float(np.median(np.linalg.norm(a - b, axis=-1) / np.linalg.norm(b, axis=-1)))


def compare(folder, temp):
    file = temp / "m.gguf"
    ids = json.loads((folder / "ids.json").read_text()) if (folder / "ids.json").exists() else None
    rows = ids if ids and isinstance(ids[0], list) else [ids or list(range(1, 49))]
    want = np.load(folder / "logits.npy").reshape(len(rows), len(rows[0]), -1) \
        if (folder / "logits.npy").exists() else None
    for kind, limit in LIMITS.items():
        try:
            export(folder, file, kind)
        except subprocess.CalledProcessError as e:
            report(f"{folder.name} {kind}", "has no place for" in e.stderr, "refused: " + e.stderr.strip()[-120:])
            break
        for i, row in enumerate(rows[:1]):
            n = min(len(row), window(folder))
            ours = pesc_logits(file, row, temp)
            try:
                got = logits_of(file, row)
            except ValueError as e:
                report(f"{folder.name} {kind}", False, f"llama.cpp: {e}")
                break
            wanted = want[i] if kind == "f32" and want is not None else ours
            d = distance(got[:n], wanted[:n])
            limit = YARN if kind == "f32" and "yarn" in folder.name else limit
            report(f"{folder.name} {kind}", d <= limit, f"logits differ by {d:.2e} (limit {limit:.0e})")


def lora(temp):
    """A run's LoRA as a GGUF file over the base as a GGUF file: the logits of the run."""
    base, data, run = ROOT / "share/base", ROOT / "share/test.jsonl", temp / "lora-run"
    subprocess.run([PESC, "train", str(base), "--data", str(data), "--template", "camelidae", "--method", "lora", "--lora-r", "4", "--steps", "8",
                    "--batch", "4", "--seq-len", "64", "--lr", "1e-2", "--base-dtype", "f32", "-o", str(run), "-q"], check=True, capture_output=True)
    export(base, temp / "base.gguf", "f32")
    subprocess.run([PESC, "export", str(run), "--to", "gguf-lora", "-o", str(temp / "lora.gguf"), "-q"], check=True, capture_output=True)
    ids = list(range(5, 45))
    want, got = pesc_logits(run, ids, temp), logits_of(temp / "base.gguf", ids, temp / "lora.gguf")
    moved, d = distance(logits_of(temp / "base.gguf", ids), want), distance(got, want)
    report("LoRA as GGUF", d <= 1e-5 < 1e-2 < moved, f"logits differ by {d:.2e} (limit 1e-05), without it by {moved:.2e}")


def tokens(folder, temp):
    """The vocabulary in the file, as llama.cpp uses it, against the tokenizer of the folder."""
    file = temp / "m.gguf"
    export(folder, file, "q8_0")
    (temp / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    model = llama_cpp.Llama(str(file), vocab_only=True, verbose=False)
    theirs = [model.tokenize(line.encode(), add_bos=False, special=False) for line in LINES]
    for source in (folder, file):
        done = subprocess.run([PESC, "tokenize", str(source), "--jsonl", str(temp / "lines.jsonl")], check=True,
                              capture_output=True, text=True)
        ours = [json.loads(line) for line in done.stdout.splitlines()]
        same = sum(a == b for a, b in zip(ours, theirs))
        report(f"{folder.name} tokens", same == len(LINES), f"{same} of {len(LINES)} texts as {source.name} has them")


def window(folder):
    """llama.cpp does not limit Mistral's attention to a window: positions inside it are compared."""
    c = json.loads((folder / "config.json").read_text())
    return c.get("sliding_window") or 1 << 30 if c["model_type"] == "mistral" else 1 << 30


def errors(folder, temp):
    """Root mean square of what the block formats lose, pesc's and llama.cpp's."""
    lib = ctypes.CDLL(str(pathlib.Path(llama_cpp.__file__).parent / "lib/libggml-base.so"))
    lib.ggml_quantize_chunk.restype = ctypes.c_size_t
    export(folder, temp / "f32.gguf", "f32")
    plain = {t.name: np.array(t.data) for t in gguf.GGUFReader(str(temp / "f32.gguf")).tensors}
    for kind in ("q8_0", "q4_0", "q4_k", "q6_k"):
        export(folder, temp / "q.gguf", kind)
        ours, theirs, n = 0.0, 0.0, 0
        for t in gguf.GGUFReader(str(temp / "q.gguf")).tensors:
            if t.tensor_type.name.lower() != kind or n > 20e6:
                continue
            x = np.ascontiguousarray(plain[t.name], np.float32)
            y = gguf.quants.dequantize(np.array(t.data), t.tensor_type).reshape(x.shape)
            out = np.zeros(t.n_bytes, np.uint8)
            lib.ggml_quantize_chunk(ctypes.c_int(t.tensor_type.value), x.ctypes.data_as(ctypes.c_void_p),
                                    out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(0),
                                    ctypes.c_int64(x.size // x.shape[-1]), ctypes.c_int64(x.shape[-1]), None)
            z = gguf.quants.dequantize(out.reshape(np.array(t.data).shape), t.tensor_type).reshape(x.shape)
            ours += float(((y - x).astype(np.float64) ** 2).sum())
            theirs += float(((z - x).astype(np.float64) ** 2).sum())
            n += x.size
        if n:
            a, b = (ours / n) ** 0.5, (theirs / n) ** 0.5
            report(f"{folder.name} {kind} error", a <= b * 1.001, f"pesc {a:.4e}, llama.cpp {b:.4e}")


def new_models(temp):
    """Models with random weights, in folders named after what differs."""
    for i, (name, changes) in enumerate(NEW):
        config = json.loads((ROOT / "tests/golden" / name / "config.json").read_text())
        config.update(changes)
        if "head_dim" not in changes:
            config.pop("head_dim", None)
        (temp / "config.json").write_text(json.dumps(config))
        folder = temp / f"{name}-new{i}"
        subprocess.run([PESC, "new", str(temp / "config.json"), "-o", str(folder), "--dtype", "f32", "-q"],
                       check=True, capture_output=True)
        randomise(folder / "model.safetensors", i)
        yield folder


def randomise(file, seed):
    """`pesc new` makes norms, biases and decays constants, in whose place nothing would be seen."""
    random, tensors = np.random.default_rng(seed), safetensors.numpy.load_file(file)
    for name, x in tensors.items():
        if x.ndim == 1:
            tensors[name] = (x + random.normal(0, 0.3, x.shape)).astype(np.float32)
    safetensors.numpy.save_file(tensors, file, {"format": "pt"})


def main():
    with tempfile.TemporaryDirectory() as name:
        temp = pathlib.Path(name)
        data = pathlib.Path(os.environ.get("PESC_DATA", "data")) / "models"
        real = [data / name for name in ("stories15M", "minimind2-small") if (data / name).is_dir()]
        given = [pathlib.Path(f) for f in sys.argv[1:]]
        made = [] if given else list(new_models(temp))
        for folder in given or [ROOT / "tests/golden" / f for f in FOLDERS] + made + real:
            compare(folder, temp)
        if not given:
            lora(temp)
        for folder in given or made[:1] + real:
            errors(folder, temp)
            if (folder / "tokenizer.json").exists():
                tokens(folder, temp)
    return failed


if __name__ == "__main__":
    sys.exit(min(main(), 1))
