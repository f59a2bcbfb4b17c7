#!/bin/sh
# Compares pesc with the programs it must agree with: tokenizers, sentencepiece, transformers, peft,
# bitsandbytes, gguf, llama.cpp, lm-evaluation-harness, openai, schemathesis, pyarrow, jsonschema, trl. They go into a virtual environment beside the build; the product needs none of
# them. PESC_DATA names a folder with tokenizers and models to compare on, besides what is made here; PESC_TEMPLATES one with
# chat templates (*.jinja, tokenizer_config.json), PESC_OPENAPI a description of OpenAI's API.
set -eu
cd "$(dirname "$0")/../.."
PESC=${PESC:-build/pesc}
venv=${PESC_VENV:-build/venv}
if [ ! -x "$venv/bin/python" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q torch transformers peft tokenizers sentencepiece safetensors \
        bitsandbytes gguf numpy xxhash protobuf
fi
if ! "$venv/bin/python" -c 'import lm_eval, tenacity' 2>/dev/null; then
    "$venv/bin/pip" install -q 'lm_eval[api]==0.4.13' sympy math_verify antlr4-python3-runtime==4.11 \
        sacrebleu rouge_score
fi
"$venv/bin/python" -c 'import llama_cpp' 2>/dev/null || "$venv/bin/pip" install -q llama-cpp-python
"$venv/bin/python" -c 'import openai' 2>/dev/null || "$venv/bin/pip" install -q openai
"$venv/bin/python" -c 'import anthropic, langchain_openai, instructor, pydantic_ai, langchain, llm' 2>/dev/null ||
    "$venv/bin/pip" install -q anthropic langchain-openai langchain instructor 'pydantic-ai-slim[openai]' litellm mcp llama-index-llms-openai-like llm
"$venv/bin/python" -c 'import schemathesis' 2>/dev/null || "$venv/bin/pip" install -q schemathesis
"$venv/bin/python" -c 'import pyarrow, polars, duckdb' 2>/dev/null || "$venv/bin/pip" install -q pyarrow polars duckdb
"$venv/bin/python" -c 'import jsonschema, rfc3339_validator' 2>/dev/null || "$venv/bin/pip" install -q "jsonschema[format-nongpl]"
export PESC_ISA=avx512 # --compute-dtype auto is f32
"$venv/bin/python" -c 'import trl' 2>/dev/null || "$venv/bin/pip" install -q trl
status=0
for script in tools/conformance/*.py; do
    echo "== $(basename "$script" .py)"
    files=""
    case $script in
    */tokenizers.py)
        files="share/base/tokenizer.json $(find "${PESC_DATA:-share}" -name 'tokenizer*.json.xz' ! -name '*config*' -o -name '*.model*')"
        set -- --pesc "$PESC"
        ;;
    *) set -- ;;
    esac
    # shellcheck disable=SC2086
    PESC=$PESC "$venv/bin/python" "$script" "$@" $files || status=1
done
exit $status
