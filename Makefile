# pesc: the front door. `make help` lists what one can do.
# BUILD=dir builds elsewhere; OPT, SAN and LDFLAGS change how; V=1 shows the commands.

Q        := $(if $(V),,@)

BUILD    ?= build
# CROSS=aarch64-linux-gnu- SYSROOT=folder builds for another machine, with the libraries of that folder.
CROSS    ?=
SYSROOT  ?=
CC       := $(CROSS)gcc
OPT      ?= -O2 -g
PREFIX   ?= /usr/local
LIBDIR   ?= $(PREFIX)/lib
# Debug symbols of what is installed are there, in files of their own; empty: they stay in the programs.
DEBUGDIR ?= $(PREFIX)/lib/debug
DESTDIR  ?=
VERSION  := $(shell sed -n 's/^\#define PESC_VERSION "\(.*\)"/\1/p' include/pesc/pesc.h)

# All cores, unless the user gave a -j. Several goals (make clean all) run in the order given.
GOALS    := $(if $(MAKECMDGOALS),$(MAKECMDGOALS),all)
ifeq ($(MAKELEVEL)$(word 2,$(GOALS))$(filter -j% --jobs% --jobserver%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc)
endif

# Packages first: pkg-config below needs them. Targets that build nothing do without, and so do `make -n`
# and `make -q`.
IDLE     := help clean deps
DRY      := $(findstring n,$(firstword -$(MAKEFLAGS)))$(findstring q,$(firstword -$(MAKEFLAGS)))
ifneq ($(filter-out $(IDLE),$(GOALS)),)
ifeq ($(MAKELEVEL)$(DRY),0)
GROUPS   := build $(if $(filter test wheel,$(GOALS)),wheel) $(if $(filter arm,$(GOALS)),arm) $(if $(filter test mutants asan tsan fuzz check conformance study study-%,$(GOALS)),test)
ifneq ($(shell tools/deps.sh $(GROUPS) && echo done),done)
$(error packages are missing, see above)
endif
endif
endif

# The architecture that is built for: x86_64 or aarch64.
MACHINE  := $(shell $(CC) -dumpmachine)
ARCH     := $(firstword $(subst -, ,$(MACHINE)))
ifeq ($(filter x86_64 aarch64,$(ARCH)),)
$(error $(CC) compiles for '$(MACHINE)': pesc is written for x86_64 and aarch64)
endif

LIBS     := jansson libpcre2-8 libutf8proc libcrypto libxxhash liblzma libzstd liblz4 cairo
PKGCONF  := $(if $(SYSROOT),PKG_CONFIG_SYSROOT_DIR=$(SYSROOT) \
              PKG_CONFIG_LIBDIR=$(SYSROOT)/usr/lib/$(MACHINE)/pkgconfig:$(SYSROOT)/usr/share/pkgconfig) pkg-config
PKG      := $(shell $(PKGCONF) --cflags $(LIBS) 2>/dev/null)
LDLIBS   := $(shell $(PKGCONF) --libs $(LIBS) 2>/dev/null) -lsnappy -lz -lpthread -lm
WARN     := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
            -Wpointer-arith -Wvla
# -ffp-contract=off: a product and a sum are fused only where the code says so, so that results do
# not depend on the compiler's choice. A char is signed on every architecture. -fPIC: the same objects
# make the shared library.
CFLAGS   := -std=c17 -D_GNU_SOURCE $(if $(SYSROOT),--sysroot=$(SYSROOT)) $(OPT) $(SAN) $(WARN) -ffp-contract=off \
            $(if $(filter aarch64,$(ARCH)),-fsigned-char) -fvisibility=hidden -fPIC -Iinclude -Isrc $(PKG)

# Kernels are of one architecture.
KERNELS_x86_64  := isa_x86_64 kernel_base kernel_avx% kernel_amx
KERNELS_aarch64 := isa_aarch64 kernel_neon%
FOREIGN  := $(foreach other,$(filter-out $(ARCH),x86_64 aarch64),$(KERNELS_$(other):%=src/backend/cpu/%.c))
SRC      := $(filter-out $(FOREIGN),$(shell find src -name '*.c' -not -path 'src/cli/*' \
              -not -path 'src/backend/cpu/ops/*' -not -path 'src/backend/cuda/*' | sort))
# The CPU's ops are compiled once for each of these instruction sets; cpu.c picks a table at run time.
ISAS_x86_64  := base avx2 avx512 avx512_bf16
ISAS_aarch64 := base
ISA_SRC  := $(wildcard src/backend/cpu/ops/*.c)
ISA_OBJ  := $(foreach isa,$(ISAS_$(ARCH)),$(ISA_SRC:%.c=$(BUILD)/%.$(isa).o))
EMBEDDED := chat page python tasks
OBJ      := $(SRC:%.c=$(BUILD)/%.o) $(ISA_OBJ) $(EMBEDDED:%=$(BUILD)/embedded_%.o)
CLI_OBJ  := $(patsubst %.c,$(BUILD)/%.o,$(sort $(shell find src/cli -name "*.c")))
UNIT     := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/unit/test_*.c tests/golden/test_*.c))
OPS_SRC  := $(wildcard tests/ops/*.c)
OPS      := $(if $(OPS_SRC),$(BUILD)/tests/ops/run)
SUPPORT  := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/support/*.c))
FUZZ     := $(patsubst tests/fuzz/%.c,$(BUILD)/%,$(wildcard tests/fuzz/fuzz_*.c))
BENCH    := $(patsubst %.c,$(BUILD)/%,$(wildcard bench/*.c))

# The CUDA part is an object of its own, which the command loads when a GPU is asked for. It is built
# where nvcc and cuBLASLt are; everywhere else the rest is built without it.
NVCC     ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
CUDA     := $(if $(NVCC),$(abspath $(dir $(NVCC))/..))
CUDA_SO  := $(if $(NVCC),$(if $(wildcard $(CUDA)/include/cublasLt.h),$(BUILD)/pesc-cuda.so))
CUDA_SRC := $(wildcard src/backend/cuda/*.c src/backend/cuda/*.cu)
CUDA_OBJ := $(CUDA_SRC:%=$(BUILD)/%.o)
NVFLAGS  := -std=c++17 -O3 -Iinclude -Isrc -Xcompiler -fPIC,-fvisibility=hidden,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-Wall \
            -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90a,code=sm_90a

.PHONY: all help deps docs test test-cuda arm check mutants asan tsan fuzz bench bench-cuda bench-kernels performance conformance demo study study-esft study-gpu study-smol study-qwen study-esft-smol install deb bundle wheel \
        clean tests fuzzers FORCE
all: $(BUILD)/pesc $(CUDA_SO) ## build/pesc, the command
	@$(if $(CUDA_SO),,echo "  found no nvcc: built without the CUDA part")

help: ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*## /\t/' | expand -t 17

deps: ## install missing Debian packages
	@tools/deps.sh build test

# ---- building

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(CFLAGS) $(if $(filter tests/%,$<),-Itests) -MMD -MP -c $< -o $@

# Folders of share/ that are part of the library: chat formats, the server's page, the modelling file of exports, evaluation tasks.
define EMBED_RULE
$(BUILD)/embedded_$(1).c: $(wildcard share/$(1)/*.*) tools/embed.sh
	@mkdir -p $$(@D)
	$$(Q)tools/embed.sh $(1) $(wildcard share/$(1)/*.*) > $$@
endef
$(foreach f,$(EMBEDDED),$(eval $(call EMBED_RULE,$(f))))
$(EMBEDDED:%=$(BUILD)/embedded_%.o): %.o: %.c
	@echo "  CC    $<"
	$(Q)$(CC) $(CFLAGS) -MMD -MP -c $< -o $@

# The Python program of the sandbox is part of this object.
$(BUILD)/src/sandbox/driver.o: src/sandbox/driver.py

ISA_OPT := $(if $(findstring -O2,$(OPT)),-O3)
define ISA_RULE
$(BUILD)/%.$(1).o: %.c
	@mkdir -p $$(@D)
	@echo "  CC    $$< ($(1))"
	$$(Q)$$(CC) $$(CFLAGS) $$(ISA_OPT) -DISA=$(1) -march=$(2) -MMD -MP -c $$< -o $$@
endef
$(eval $(call ISA_RULE,base,$(if $(filter x86_64,$(ARCH)),x86-64,armv8-a)))
$(eval $(call ISA_RULE,avx2,x86-64-v3))
$(eval $(call ISA_RULE,avx512,x86-64-v4))
$(eval $(call ISA_RULE,avx512_bf16,x86-64-v4 -mavx512bf16))

$(BUILD)/libpesc.a: $(OBJ)
	@rm -f $@
	$(Q)$(CROSS)ar rcs $@ $(OBJ)

$(BUILD)/pesc: $(CLI_OBJ) $(BUILD)/libpesc.a
	@echo "  LINK  $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ -o $@ -lyaml -ledit $(LDLIBS)

$(BUILD)/%.c.o: %.c
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(CFLAGS) -isystem $(CUDA)/include -MMD -MP -c $< -o $@
$(BUILD)/%.cu.o: %.cu
	@mkdir -p $(@D)
	@echo "  NVCC  $<"
	$(Q)$(NVCC) $(NVFLAGS) -MMD -MP -c $< -o $@
# It has one visible symbol; of the library it takes what it needs.
$(BUILD)/pesc-cuda.so: $(CUDA_OBJ) $(BUILD)/libpesc.a
	@echo "  LINK  $@"
	$(Q)$(CC) -shared $^ -o $@ -Wl,--exclude-libs,ALL -Wl,-z,defs -L$(CUDA)/lib64 -lcudart_static \
	    -lcublasLt -Wl,-rpath,$(CUDA)/lib64 -lpthread -ldl -lrt -lm

# What is installed: one object in which only pesc_* is visible. The folder is not named `install`: with
# build/ in PATH, make would take that folder for install(1).
$(BUILD)/dist/libpesc.o: $(OBJ)
	@mkdir -p $(@D)
	$(Q)$(CROSS)ld -r $^ -o $@
	$(Q)$(CROSS)objcopy --localize-hidden $@
$(BUILD)/dist/libpesc.a: $(BUILD)/dist/libpesc.o
	@rm -f $@
	$(Q)$(CROSS)ar rcs $@ $<
$(BUILD)/dist/libpesc.so.0: $(BUILD)/dist/libpesc.o
	$(Q)$(CC) -shared $(LDFLAGS) -Wl,-soname,libpesc.so.0 $< -o $@ $(LDLIBS)

# ---- testing

$(BUILD)/tests/ops/run: $(OPS_SRC:%.c=$(BUILD)/%.o) $(BUILD)/tests/support/filter.o $(BUILD)/libpesc.a
	@echo "  LINK  $@"
	$(Q)$(CC) $(CFLAGS) $^ -o $@ -lcmocka $(LDLIBS)
$(BUILD)/tests/%: $(BUILD)/tests/%.o $(SUPPORT) $(BUILD)/libpesc.a
	@echo "  LINK  $@"
	$(Q)$(CC) $(CFLAGS) $^ -o $@ -lcmocka $(LDLIBS)

# gcc 12 for Arm fails to vectorise a loop of a test.
$(BUILD)/tests/%.o: CFLAGS += $(if $(filter aarch64,$(ARCH)),-fno-tree-vectorize)

tests: $(UNIT) $(OPS) $(BUILD)/tests/faults/sandbox_programs $(BUILD)/tests/conformance/eval_text \
       $(BUILD)/tests/conformance/jinja_render $(BUILD)/tests/conformance/parquet_rows \
       $(BUILD)/tests/conformance/schema_texts

test: $(BUILD)/pesc $(CUDA_SO) tests $(BUILD)/dist/libpesc.a $(BUILD)/dist/libpesc.so.0 ## everything that must hold; ends with "N passed, M failed"
	@BUILD=$(BUILD) tests/run.sh all

test-cuda: $(BUILD)/pesc $(CUDA_SO) tests ## what needs a GPU: ops against the CPU, models, training
	@BUILD=$(BUILD) tests/cuda.sh

# Debian's cross compiler, arm64 libraries in a folder, and QEMU, which runs the programs.
ARM      := $(BUILD)/arm
arm: $(BUILD)/pesc ## build for 64-bit Arm in build/arm; its C tests under QEMU, its bits beside AVX2's
	@tools/sysroot.sh arm64 $(ARM)/sysroot
	$(MAKE) BUILD=$(ARM) CROSS=aarch64-linux-gnu- CC="$(filter ccache,$(CC)) aarch64-linux-gnu-gcc" NVCC= LDFLAGS= \
	    SYSROOT=$(abspath $(ARM))/sysroot $(ARM)/pesc tests
	@BUILD=$(BUILD) tests/arm.sh

check: ## format, include ranks, banned calls, sizes, documents; builds nothing
	@tools/check.sh

asan: ## the C tests under AddressSanitizer and UBSan
	$(MAKE) BUILD=$(BUILD)/asan OPT="-O1 -g" SAN="-fsanitize=address,undefined -fno-sanitize-recover=all" \
	    $(BUILD)/asan/pesc tests
	@BUILD=$(BUILD)/asan tests/run.sh c

# The oracles of the ops run on one thread; instrumented they would take most of the time.
$(BUILD)/tests/ops/%.o: CFLAGS := $(filter-out -fsanitize=thread,$(CFLAGS))

tsan: ## the C tests under ThreadSanitizer
	$(MAKE) BUILD=$(BUILD)/tsan SAN="-fsanitize=thread" tests
	@BUILD=$(BUILD)/tsan tests/run.sh c

# The library once with clang's instrumentation, then each target linked to it.
# No parser calls a kernel, and clang takes minutes to instrument one.
$(BUILD)/src/backend/%.o: CFLAGS := $(filter-out -fsanitize=fuzzer-no-link%,$(CFLAGS))
FUZZ_SECONDS ?= 60
$(BUILD)/fuzz_%: tests/fuzz/fuzz_%.c $(BUILD)/libpesc.a
	@echo "  FUZZ  $@"
	$(Q)$(CC) $(CFLAGS) -fsanitize=fuzzer $^ -o $@ $(LDLIBS)
fuzzers: $(FUZZ)
fuzz: ## each parser under libFuzzer for FUZZ_SECONDS
	$(Q)$(MAKE) BUILD=$(BUILD)/fuzz CC=clang WARN=-w OPT="-O1 -g" \
	    SAN="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all" fuzzers
	@BUILD=$(BUILD) SECONDS_EACH=$(FUZZ_SECONDS) tests/fuzz/run.sh

mutants: $(BUILD)/pesc tests ## seeded faults, each of which a test must notice; ONLY=regex for some (15 minutes)
	@BUILD=$(BUILD) tests/mutants/run.py $(if $(ONLY),--only '$(ONLY)')

conformance: $(BUILD)/pesc $(BUILD)/tests/conformance/eval_text $(BUILD)/tests/conformance/jinja_render $(BUILD)/tests/conformance/parquet_rows \
       $(BUILD)/tests/conformance/schema_texts ## compare with transformers, peft, tokenizers, lm-eval in a virtual environment
	@PESC=$(BUILD)/pesc tools/conformance/run.sh

$(BUILD)/bench/%: $(BUILD)/bench/%.o $(BUILD)/libpesc.a
	@echo "  LINK  $@"
	$(Q)$(CC) $(CFLAGS) $^ -o $@ $(LDLIBS)
bench: $(BENCH) $(BUILD)/pesc ## time kernels and the command on this machine
	@BUILD=$(BUILD) bench/run.sh

# Studies of single kernels link these kernels and stand in for the device around them.
kernels    = $(patsubst %,$(BUILD)/%.o,$(wildcard $(addprefix src/backend/cuda/,$(addsuffix .cu,$(1)))))
ATTENTION := $(call kernels,attention* rope)
GROUPED   := $(call kernels,grouped* nf4 pointwise)
PRODUCT   := $(call kernels,gemm_wgmma nf4)
ROWS      := $(call kernels,pointwise rows norm router router_few rope routing* xent dropout adamw quant)
STUDIES   := $(addprefix $(BUILD)/bench/,attention_cuda grouped_cuda product_cuda rows_cuda)
$(BUILD)/bench/attention_cuda: $(BUILD)/bench/attention_cuda.cu.o $(ATTENTION) $(BUILD)/libpesc.a
$(BUILD)/bench/grouped_cuda: $(BUILD)/bench/grouped_cuda.cu.o $(GROUPED) $(BUILD)/libpesc.a
$(BUILD)/bench/product_cuda: $(BUILD)/bench/product_cuda.cu.o $(PRODUCT) $(BUILD)/libpesc.a
$(BUILD)/bench/rows_cuda: $(BUILD)/bench/rows_cuda.cu.o $(BUILD)/bench/rows_check.cu.o $(ROWS) $(BUILD)/libpesc.a
$(STUDIES):
	@echo "  LINK  $@"
	$(Q)$(NVCC) $^ -o $@ -lcublas -lcublasLt -Xlinker -rpath=$(CUDA)/lib64 $(LDLIBS)
test: $(BENCH) $(if $(CUDA_SO),$(STUDIES)) # so that they still build
bench-kernels: $(STUDIES) ## check and time the CUDA kernels one by one, on a GPU
	@cd $(BUILD)/bench && ./attention_cuda errors && ./attention_cuda rates && ./attention_cuda decode && \
	    ./grouped_cuda check && ./grouped_cuda time && ./product_cuda && ./rows_cuda check && ./rows_cuda time

bench-cuda: $(addprefix $(BUILD)/bench/,cuda shape idle) $(STUDIES) $(BUILD)/pesc $(CUDA_SO) ## time kernels, training steps and decoding on a GPU, beside PyTorch
	@LD_LIBRARY_PATH=$(BUILD) python3 bench/performance.py run cuda --build $(BUILD)

performance: $(BENCH) $(BUILD)/pesc $(if $(CUDA_SO),$(STUDIES)) ## measure this machine and fill docs/performance.md (hours; peers need torch, llama-cpp-python, gguf)
	@python3 bench/performance.py run cpu --build $(BUILD)
	@python3 bench/peers.py --pesc $(BUILD)/pesc --files $(BUILD)/peers --out bench/results/peers.json
	@if nvidia-smi >/dev/null 2>&1; then LD_LIBRARY_PATH=$(BUILD) python3 bench/performance.py run cuda --build $(BUILD); fi
	@python3 bench/performance.py page

docs: $(BUILD)/pesc ## rewrite docs/commands from the tables of commands and options
	@for page in docs/commands/*.md; do $(BUILD)/pesc help $$(basename $$page .md) --markdown > $$page; done

demo: $(BUILD)/pesc ## the main job, end to end; leaves its products in build/demo
	@PESC_SHARE=share $(BUILD)/pesc demo -o $(BUILD)/demo

# A study is a description in studies/; old names of targets stand for theirs. The ones on real models need MODEL (a GGUF file or a directory), SOURCE (a
# folder of data) and a GPU; qwen and esft-smol read the data that smol has prepared. STUDY_OPTIONS="--minutes 20" and others: studies/run.py --help.
STUDY     ?= embedded
STUDY_CPU := embedded esft sparse esft-fine grammars merged preferences
STUDY_RUN  = PESC=$(BUILD)/pesc LIBPESC=$(BUILD)/dist/libpesc.so.0 studies/run.py $(STUDY)
STUDY_HERE = --work $(BUILD)/studies/$(STUDY) $(if $(MODEL),--model $(MODEL))
study: $(BUILD)/pesc $(BUILD)/dist/libpesc.so.0 $(if $(filter $(STUDY_CPU),$(STUDY)),,$(CUDA_SO)) ## STUDY=embedded (25 minutes), esft, sparse, esft-fine, grammars, merged, preferences, gpu, smol, qwen, esft-smol: writes its page in docs/
	@$(STUDY_RUN) run $(STUDY_HERE) $(if $(SOURCE),--source $(SOURCE)) $(if $(filter $(STUDY_CPU),$(STUDY)),,--device cuda --threads 4) \
	    $(if $(filter qwen esft-smol,$(STUDY)),--data $(BUILD)/studies/smol/data) $(STUDY_OPTIONS)
	@$(STUDY_RUN) report $(STUDY_HERE)
study-esft study-gpu study-smol study-qwen study-esft-smol: study-%:
	@$(MAKE) --no-print-directory study STUDY=$*

# ---- installing

# Written anew whenever PREFIX or the version is another one than the file has.
$(BUILD)/dist/pesc.pc: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))' 'includedir=$${prefix}/include' '' \
	    'Name: pesc' 'Description: sparse mixtures of experts from dense language models' \
	    'Version: $(VERSION)' 'Requires.private: $(LIBS)' 'Libs: -L$${libdir} -lpesc' \
	    'Libs.private: -lsnappy -lz -lpthread -lm' 'Cflags: -I$${includedir}' > $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
FORCE:
$(BUILD)/dist/pesc.1: $(BUILD)/pesc
	@mkdir -p $(@D)
	$(Q)$< help --man > $@
$(BUILD)/dist/pesc.bash: $(BUILD)/pesc
	@mkdir -p $(@D)
	$(Q)$< help --completion bash > $@

SYMBOLS   = $(if $(DEBUGDIR),$(DESTDIR)$(DEBUGDIR))
install: $(BUILD)/pesc $(CUDA_SO) $(BUILD)/dist/libpesc.a $(BUILD)/dist/libpesc.so.0 $(BUILD)/dist/pesc.pc $(BUILD)/dist/pesc.1 $(BUILD)/dist/pesc.bash ## to PREFIX (and DESTDIR)
	tools/install_stripped.sh $(BUILD)/pesc $(DESTDIR)$(PREFIX)/bin/pesc "$(SYMBOLS)"
	$(if $(CUDA_SO),tools/install_stripped.sh $(CUDA_SO) $(DESTDIR)$(LIBDIR)/pesc/pesc-cuda.so "$(SYMBOLS)")
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/include/pesc include/pesc/*.h
	install -D -m 644 $(BUILD)/dist/libpesc.a $(DESTDIR)$(LIBDIR)/libpesc.a
	tools/install_stripped.sh $(BUILD)/dist/libpesc.so.0 $(DESTDIR)$(LIBDIR)/libpesc.so.0 "$(SYMBOLS)"
	ln -sf libpesc.so.0 $(DESTDIR)$(LIBDIR)/libpesc.so
	install -D -m 644 $(BUILD)/dist/pesc.pc $(DESTDIR)$(LIBDIR)/pkgconfig/pesc.pc
	install -D -m 644 $(BUILD)/dist/pesc.1 $(DESTDIR)$(PREFIX)/share/man/man1/pesc.1
	install -D -m 644 $(BUILD)/dist/pesc.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/pesc
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/pesc share/*.jsonl share/tune.yaml
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/pesc/base share/base/*

deb: ## Debian packages of the committed tree in build/deb, checked with lintian
	@tools/deb.sh $(BUILD)/deb

# A folder that runs where the packages are not: every library but the C library's own.
$(BUILD)/bundle/bin/pesc: $(CLI_OBJ) $(BUILD)/libpesc.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $^ -o $@ -Wl,--disable-new-dtags -Wl,-rpath,'$$ORIGIN/../lib' -lyaml -ledit $(LDLIBS)
bundle: $(BUILD)/bundle/bin/pesc $(CUDA_SO) ## build/bundle: the command and the libraries it needs
	@tools/bundle.sh $(BUILD)/bundle $(CUDA_SO)

WHEELS   ?= dist
# The command over the shared library, which the Python module loads too.
$(BUILD)/dist/pesc: $(CLI_OBJ) $(BUILD)/dist/libpesc.so.0
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ -o $@ -Wl,--as-needed -lyaml -ledit $(LDLIBS)
wheel: $(BUILD)/dist/pesc $(CUDA_SO) ## dist/pesc-VERSION-*.whl: what `pip install` needs for the command and the Python module
	@tools/wheel.py $(BUILD) $(WHEELS)

clean: ## remove what was built
	rm -rf $(BUILD)

.SECONDARY:
-include $(shell find $(BUILD) -type f -name '*.d' 2>/dev/null)
