"""OpenVINO as a peer of peers.py: its GenAI pipeline reads a GGUF file, and answers each line [prompt, decode, sequences] with a line of rates."""
import json
import sys
import time

import numpy
import openvino
import openvino_genai


def main():
    file, threads = sys.argv[1:]
    try:
        pipeline = openvino_genai.LLMPipeline(file, "CPU", INFERENCE_NUM_THREADS=int(threads))
    except (RuntimeError, ValueError, IndexError) as e:
        print(f"the file is not read: {str(e).splitlines()[-1]}", flush=True)
        return
    clock = time.perf_counter if int(threads) > 1 else time.process_time
    print("ready", flush=True)
    for line in sys.stdin:
        prompt, decode, _ = json.loads(line)
        ids = openvino.Tensor(numpy.random.randint(1, 1000, (1, prompt)))
        first = []
        options = openvino_genai.GenerationConfig(max_new_tokens=decode + 1, ignore_eos=True)
        started = clock()
        pipeline.generate(openvino_genai.TokenizedInputs(ids, openvino.Tensor(numpy.ones((1, prompt), numpy.int64))), options,
                          lambda text: first.append(clock()) and None)
        ended = clock()
        print(json.dumps([prompt / (first[0] - started), decode / (ended - first[0])]), flush=True)


main()
