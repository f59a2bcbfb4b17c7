"""llama.cpp as a peer: built for this machine from the source package of its Python binding, and timed by its C interface."""
import importlib.metadata
import os
import pathlib
import random
import subprocess
import tarfile
import time

OPTIONS = ["-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=ON", "-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF",
           *(f"-DLLAMA_BUILD_{part}=OFF" for part in ("COMMON", "TESTS", "EXAMPLES", "TOOLS", "SERVER"))]


def build(folder, jobs):
    """The directory of libllama.so, built in `folder` from the sources of the binding that is installed, unless it is there."""
    version = importlib.metadata.version("llama-cpp-python")
    source, made = folder / f"llama_cpp_python-{version}", folder / f"llama-{version}"
    if not (made / "bin/libllama.so").exists():
        subprocess.run(["pip", "download", "-q", "--no-binary", "llama-cpp-python", "--no-deps", "-d", folder, f"llama-cpp-python=={version}"], check=True)
        with tarfile.open(source.with_name(source.name + ".tar.gz")) as package:
            package.extractall(folder, filter="data")
        subprocess.run(["cmake", "-S", source / "vendor/llama.cpp", "-B", made, *OPTIONS], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", made, "--target", "llama", "-j", str(jobs)], check=True, stdout=subprocess.DEVNULL)
    return made / "bin"


def use(folder):
    """Makes the binding load the library in `folder` instead of its own, and silences it; before anything else imports it."""
    os.environ["LLAMA_CPP_LIB_PATH"] = str(pathlib.Path(folder).resolve())
    import llama_cpp
    use.silent = llama_cpp.llama_log_callback(lambda level, text, data: None)  # kept as long as the library may call it
    llama_cpp.llama_log_set(use.silent, None)


def clock_of(threads):
    """Seconds; of one thread those of CPU time, which other programs on the machine disturb less."""
    return time.perf_counter if threads > 1 else time.process_time


class Llama:
    """A model, and the seconds of forwards of random tokens. Prompts are read 512 tokens at a time, as llama.cpp does by default."""

    def __init__(self, path, threads):
        import llama_cpp
        self.L, self.threads, self.clock = llama_cpp, threads, clock_of(threads)
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.random = random.Random(1)

    def close(self):
        self.L.llama_model_free(self.model)

    def _decode(self, context, batch, tokens):
        """tokens: (sequence, position, whether its logits are read)."""
        batch.n_tokens = len(tokens)
        for i, (sequence, position, logits) in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.logits[i] = self.random.randrange(self.vocab), position, logits
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
        started = self.clock()
        assert self.L.llama_decode(context, batch) == 0
        self.L.llama_synchronize(context)
        return self.clock() - started

    def rates(self, prompt, decode, sequences=1):
        """Tokens a second of `sequences` prompts, and of `decode` tokens of each after them."""
        L, p = self.L, self.L.llama_context_default_params()
        p.n_ctx, p.n_seq_max = sequences * (prompt + decode + 64), sequences
        p.n_batch = p.n_ubatch = 512
        p.n_threads = p.n_threads_batch = self.threads
        context, batch = L.llama_init_from_model(self.model, p), L.llama_batch_init(512, 0, 1)
        try:
            self._decode(context, batch, [(0, 0, True)])  # not timed: the first forward makes buffers
            L.llama_memory_clear(L.llama_get_memory(context), True)
            tokens = [(s, i, i + 1 == prompt) for s in range(sequences) for i in range(prompt)]
            read = sum(self._decode(context, batch, tokens[at:at + 512]) for at in range(0, len(tokens), 512))
            wrote = sum(self._decode(context, batch, [(s, prompt + i, True) for s in range(sequences)]) for i in range(decode))
        finally:
            L.llama_batch_free(batch)
            L.llama_free(context)
        return sequences * prompt / read, sequences * decode / wrote
