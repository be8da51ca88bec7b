# SPDX-License-Identifier: Apache-2.0
#
# make            builds the library and the programs into build/
# make demo       installs what is missing, builds, trains a small GPT
# make check      installs what is missing, builds, runs the tests
# make check-all  more of the tests: also under the sanitizers
# make check-scale  tests that need large models: minutes, 14 GB, 22 GB of disk
# make check-valgrind  suites under valgrind: minutes
# make fuzz       feeds the readers of files and options with made-up bytes (clang)
# make tests      builds the tests alone
# make ptx-report  registers and spills of the kernels for GPUs
# make chaos      runs gpt2 while ranks die, disks fail and limits fall: ROUNDS=200 SEED=1
# make bench      measures the library against this machine's limits
# make bench-full larger sizes, and whole runs of gpt2: half an hour; ONLY='update overlap
#                 stages link paths': some
# make bench-peers  the same work by fio, PyTorch and DeepSpeed, which it installs in
#                 PEERS=build-peers (gigabytes); ONLY='adam io products train update'
# make check-gpu  tests on this machine's GPU, again where it was cut off; ONLY='cuda ...'
# make bench-gpu  a table of what the library does there; QUICK=1: only see that it runs;
#                 FAKE_GPU=1: both on a simulated GPU; RESULTS=folder: where the table and
#                 the names of what has passed go
# make gpu-bundle  copies what such a machine lacks to build-bundle; there: make
#                 check-gpu BUNDLE=build-bundle; PROVE=1 tries it here, as root
# make deps       installs what is missing (as root, from the distribution); make deps-extra:
#                 also what check-all, check-valgrind and fuzz use
# make install    puts library, headers and zero.pc, as built, in PREFIX; make uninstall
# make clean      removes every build folder
# make help       this page
#
# Variables: CC CFLAGS LDFLAGS BUILD V=1 (show commands) MPIRUN,
# SAN=address,undefined or SAN=thread, VALGRIND=1 (built in a folder of its own),
# MPI=0 URING=0 XXHASH=0 CHECK=0 CUDA=0 CUBLAS=0 NCCL=0 (build without that package),
# CUDA_ARCH='80 90' (kernels for these GPUs, and for later ones than the last; with one below 80
# the library's alone, without gpt2's),
# PREFIX=/usr/local LIBDIR INCLUDEDIR DESTDIR (install, uninstall: where),
# ONLY=norm_test (check: only these suites) TIMEOUT=seconds (check: per suite) JOBS=3 (check:
# suites at a time; most of them wait for what they provoke),
# SECONDS=600 (fuzz: in all) TARGETS=options (fuzz: only these)
# DEMO='options' DEMO_RANKS=2 (demo: of build/gpt2),
# MPICC MPIRUN CUDA_HOME NVCC, URING_ CHECK_ CUDA_CFLAGS and _LIBS, XXHASH_CFLAGS, NCCL_ CUBLAS_LIBS
# (packages in folders of their own: the README).

SHELL := /bin/bash
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:

SAN ?=
comma := ,
VALGRIND ?=
BUILD ?= build$(if $(SAN),-$(subst $(comma),-,$(SAN)))$(if $(VALGRIND),-valgrind)
Q := $(if $(V),,@)
say = @$(if $(V),:,printf '  %-7s %s\n' $(1) $(2))

DEMO ?= --stage 3 --offload nvme --data /usr/include --steps 900 --lr 4e-3 --sample 2000
DEMO_RANKS ?= 2

# ------------------------------------------------------------------- probes
include tests/probe.mk

# -------------------------------------------------------------------- flags
OPT ?= -O3 -g
CFLAGS ?= $(OPT)
# A call of what is not declared is no warning: what it returns would be taken for an int.
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror=implicit
# Behind CFLAGS. Bits: nothing is reordered, approximated or contracted into FMA, and NaN counts.
# Speed: neither errno of sqrtf nor traps keep a loop from vectors.
EXACT := -fno-trapping-math -fno-unsafe-math-optimizations -fno-associative-math \
	-fno-reciprocal-math -fsigned-zeros -fno-finite-math-only -ffp-contract=off \
	-fno-math-errno -fno-trapping-math
FAST := $(filter -ffast-math -Ofast,$(CFLAGS))
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
BASE := -std=gnu11 -D_GNU_SOURCE -I. $(WARN) -fvisibility=hidden -fPIC -pthread $(SANFLAGS)
# gpt2's kernels need what GPUs have from compute capability 8.0 on.
CUDA_ARCH ?= 80 90
ARCHS := $(CUDA_ARCH:sm_%=%)
ifneq ($(filter 5% 6% 7%,$(ARCHS)),)
override CUBLAS := 0
endif
PACKAGES := MPI URING XXHASH CUDA CUBLAS NCCL VALGRIND
$(foreach p,$(PACKAGES) CHECK,$(if $(filter-out 0 1,$($p)), \
	$(error $p is '$($p)'. Give $p=0 to build without it, $p=1 with it, or leave it out)))
DEFS := $(foreach p,$(PACKAGES),$(if $(filter 1,$($p)),-DHAVE_$p))
INCS := $(CHECK_CFLAGS) $(MPI_CFLAGS) $(URING_CFLAGS) $(XXHASH_CFLAGS) $(CUDA_CFLAGS)
OWN := # of one file
COMPILE = $(CC) $(BASE) $(DEFS) $(INCS) $(CFLAGS) $(EXACT) $(OWN) -MMD -MP
LIBS := $(MPI_LIBS) $(URING_LIBS) -lm -ldl -pthread
AVX2 := -mavx2 -mf16c
FMA := -mavx2 -mfma
AVX512 := -mavx512f -mavx512bw -mavx512dq -mavx512vl

# Kernels for GPUs: machine code for each of CUDA_ARCH, PTX for what comes later. The host's
# compiler is nvcc's choice; statics that lock would want the C++ library.
NVCC_EXACT := -fmad=false -ftz=false -prec-div=true -prec-sqrt=true
NVCC_HOST := -Wall,-Wextra,-fPIC,-fvisibility=hidden,-fno-threadsafe-statics
NVCC_FLAGS ?= -O3
NVCC_ARCH := $(foreach a,$(ARCHS),-gencode arch=compute_$a,code=sm_$a)
NVCC_ARCH += -gencode arch=compute_$(lastword $(ARCHS)),code=compute_$(lastword $(ARCHS))
NVCC_COMPILE = $(NVCC) -std=c++17 -I. -Xcompiler $(NVCC_HOST) $(NVCC_FLAGS) $(NVCC_EXACT) \
	$(NVCC_ARCH)

# ------------------------------------------------------------------ sources
CORE := $(wildcard src/*.c src/device/*.c src/comm/*.c offload/*.c kernels/*.c)
CORE := $(filter-out src/device/cuda% src/comm/nccl%,$(CORE))
ifneq ($(MPI),1)
CORE := $(filter-out src/comm/mpi%,$(CORE))
endif
ifneq ($(URING),1)
CORE := $(filter-out offload/uring.c,$(CORE))
endif
CORE += kernels/cpu/scalar.c
ifneq ($(filter x86_64%,$(CC_MACHINE)),)
CORE += kernels/cpu/avx2.c kernels/cpu/avx512.c
endif
ifneq ($(filter aarch64%,$(CC_MACHINE)),)
CORE += kernels/cpu/neon.c
endif
COMMON := $(wildcard examples/common/*.c)
GPT2 := $(wildcard examples/gpt2/*.c)
GPT2_CUDA := $(wildcard examples/gpt2/cuda/*.c)
TOOL := $(wildcard examples/zero/*.c)
MEMSCALE := $(wildcard examples/memscale/*.c)
SUPPORT := $(wildcard tests/support/*.c)
SUITES := $(patsubst tests/%.c,%,$(wildcard tests/*_test.c))
SUITES := $(filter-out gpt2_kernels_test,$(SUITES)) # there is nothing but the kernels to link
ifneq ($(MPI),1)
SUITES := $(filter-out mpi% launch_test,$(SUITES))
endif

obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

# No GPU runs under a sanitizer.
KERNELS := $(if $(SAN)$(VALGRIND),,$(if $(filter 1,$(CUDA)),$(wildcard kernels/cuda/*.cu)))
KERNELS := $(patsubst %.cu,$(BUILD)/obj/%.o,$(KERNELS))
GPT2_KERNELS := $(if $(KERNELS),$(if $(filter 1,$(CUBLAS)),$(wildcard examples/gpt2/cuda/*.cu)))
GPT2_KERNELS := $(patsubst %.cu,$(BUILD)/obj/%.o,$(GPT2_KERNELS))

# The same kernels by a C++ compiler, for a suite without a GPU; and that suite on one. A GPU reads
# nothing that is not aligned.
HOSTED := $(if $(SAN)$(VALGRIND),,$(if $(shell command -v $(CXX)),$(wildcard kernels/cuda/*.cu)))
HOSTED := $(patsubst %.cu,$(BUILD)/obj/%.hosted.o,$(HOSTED))
GPT2_HOSTED := $(if $(HOSTED),$(wildcard examples/gpt2/cuda/*.cu))
GPT2_HOSTED := $(patsubst %.cu,$(BUILD)/obj/%.hosted.o,$(GPT2_HOSTED))
HOSTED_COMPILE = $(CXX) -std=gnu++17 -D_GNU_SOURCE -x c++ -include tests/support/fake_nvcc.h -I. \
	-O2 -g -ffp-contract=off -fno-threadsafe-statics -pthread -MMD -MP -Wall -Wextra \
	-fsanitize=alignment,bounds,shift -fsanitize-undefined-trap-on-error \
	-Wno-unknown-pragmas -Wno-unknown-warning-option -Wno-maybe-uninitialized -Wno-pass-failed \
	-fno-exceptions
CUDA_TESTS := $(if $(HOSTED),$(patsubst %,$(BUILD)/tests/%_on_host, \
	cuda_kernels gpt2_kernels gpu_model))

# Programs for a machine with a GPU, and over the runtime for tests.
GPU_PARTS := bench faults $(if $(filter 1,$(MPI)),ranks)
ON_FAKES := $(GPU_PARTS:%=$(BUILD)/tests/gpu_%_on_fakes)
ON_GPU := $(if $(KERNELS),$(patsubst %,$(BUILD)/tests/%_on_gpu,cuda_kernels cuda \
	$(GPU_PARTS:%=gpu_%)))
GPT2_ON_GPU := $(if $(GPT2_KERNELS),$(patsubst %,$(BUILD)/tests/%_on_gpu,gpt2_kernels gpu_model))

PROGRAMS := $(BUILD)/gpt2 $(BUILD)/memscale $(BUILD)/quickstart $(BUILD)/zero
TESTS := $(SUITES:%=$(BUILD)/tests/%)
# What shell suites put between gpt2 and the machine.
HELPERS := $(BUILD)/tests/bad_disk $(BUILD)/tests/without
# Compiled with the tests, so that they follow what they call; linked by tests/fuzz.sh.
FUZZ_TARGETS := $(call obj,$(wildcard tests/fuzz/*_fuzz.c))

# -------------------------------------------------------------------- build
all: $(BUILD)/libzero.a $(BUILD)/libzero.so $(BUILD)/zero.pc $(PROGRAMS)
all: $(if $(KERNELS),$(BUILD)/libzero_cuda.so) \
	$(if $(GPT2_KERNELS),$(BUILD)/gpt2_cuda.so)
ifeq ($(CHECK),1)
tests: $(TESTS) $(HELPERS) $(CUDA_TESTS) $(ON_FAKES) $(ON_GPU) $(GPT2_ON_GPU) $(FUZZ_TARGETS) \
		$(if $(filter 1,$(MPI)),$(BUILD)/tests/hit.so)
# On a machine with a GPU, which is no part of check: there may be no other day with it.
gpu-programs: all $(ON_FAKES) $(ON_GPU) $(GPT2_ON_GPU) $(BUILD)/tests/plugin_test
else
tests gpu-programs: report
	@echo "The tests need Check: make deps installs it." >&2; exit 1
endif

report:
	@tests/install.sh --report $(ABSENT)
ifeq ($(CC_WORKS),0)
	@echo "No program can be compiled with CC=$(CC). make deps installs a compiler." >&2; exit 1
endif
ifneq ($(FAST),)
	@echo "CFLAGS has $(FAST), which changes results. Leave it out." >&2; exit 1
endif

# A stamp holds one variable. It is written when that changes, and what was
# made with the old value is then made again.
$(BUILD)/stamp/%: FORCE | report
	@mkdir -p $(@D)
	@printf '%s\n' '$($*)' | cmp -s - $@ || printf '%s\n' '$($*)' >$@
.PRECIOUS: $(BUILD)/stamp/%

$(BUILD)/obj/kernels/cpu/avx2.o: OWN := $(AVX2)
$(BUILD)/obj/kernels/cpu/avx512.o: OWN := $(AVX512)
ifneq ($(filter x86_64%,$(CC_MACHINE)),) # all of gpt2 is compiled everywhere
$(BUILD)/obj/examples/gpt2/rows_avx2.o: OWN := $(FMA)
$(BUILD)/obj/examples/gpt2/rows_avx512.o: OWN := $(AVX512)
endif
FLAGS := $(COMPILE) $(AVX2) $(FMA) $(AVX512)

# The version, and a sum of the headers: plugins and who opens them have to be of the same ones.
VERSION := $(shell sed -n 's/^$(hash)define ZERO_VERSION "\(.*\)"$$/\1/p' include/zero.h)
SOURCES := $(VERSION)-$(firstword $(shell cat $(sort $(wildcard include/*.h kernels/*.h src/*.h \
	src/*/*.h examples/gpt2/*.h examples/gpt2/cuda/*.h)) | cksum))
PLUGGED := $(call obj,src/device/plugin.c src/device/cuda_plugin.c \
	examples/gpt2/gpu_plugin.c examples/gpt2/cuda/gpu.c)
$(PLUGGED): OWN := -DSOURCES='"$(SOURCES)"'
$(PLUGGED): $(BUILD)/stamp/SOURCES

$(BUILD)/obj/%.o: %.c $(BUILD)/stamp/FLAGS
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -c $< -o $@

$(BUILD)/obj/%.o: %.cu $(BUILD)/stamp/NVCC_COMPILE
	$(call say,NVCC,$<)
	@mkdir -p $(@D)
	$(Q)$(NVCC_COMPILE) -MMD -MP -MF $(@:.o=.d) -c $< -o $@

$(BUILD)/obj/%.hosted.o: %.cu $(BUILD)/stamp/HOSTED_COMPILE
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(HOSTED_COMPILE) -c $< -o $@

$(BUILD)/libzero.a: $(call obj,$(CORE)) $(BUILD)/stamp/CORE
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $(filter %.o,$^)

# Programs ask for the library by the first component of its version, before 1.0 by two.
MAJOR := $(firstword $(subst ., ,$(VERSION)))
SONAME := libzero.so.$(patsubst 0,$(basename $(VERSION)),$(MAJOR))
# It stays until the process ends, also when what asked for it is closed (dlclose): MPI starts once,
# and what is left to do at exit is in it.
SHARED := -shared -Wl,-soname,$(SONAME) -Wl,-z,nodelete $(if $(SAN),,-Wl,-z,defs)

LINK = $(CC) $(SANFLAGS) $(filter %.o,$^) $(filter %.a,$^) $(LDFLAGS)
define link
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(LINK) $(1) -o $@
endef
LINKED := $(CC) $(SANFLAGS) $(LDFLAGS) $(CHECK_LIBS) $(LIBS)
LINKED += $(SHARED) $(VERSION) $(COMMON) $(GPT2) $(TOOL) $(MEMSCALE) $(SUPPORT) $(KERNELS) \
	$(CUDA_LIBS) $(NCCL_LIBS) $(GPT2_CUDA) $(GPT2_KERNELS) $(CUBLAS_LIBS)

$(BUILD)/libzero.so.$(VERSION): $(call obj,$(CORE)) $(BUILD)/stamp/CORE $(BUILD)/stamp/LINKED
	$(call link,$(SHARED) $(LIBS))

$(BUILD)/libzero.so: $(BUILD)/libzero.so.$(VERSION)
	@ln -sfn $(<F) $(@D)/$(SONAME) && ln -sfn $(SONAME) $@

$(BUILD)/zero.pc: src/zero.pc.in $(BUILD)/stamp/LINKED
	@sed -e 's|@VERSION@|$(VERSION)|' -e 's|@LIBS@|$(strip $(LIBS))|' $< >$@

# What only runs on GPUs use, opened by who asks for one. The runtime in it is its own. NCCL is
# found where it was.
PLUGIN := src/device/cuda.c src/device/cuda_plugin.c src/error.c src/thread.c
PLUGIN += $(if $(filter 1,$(NCCL)),src/comm/nccl.c src/comm/header.c)
PLUGIN := $(call obj,$(PLUGIN))
# What of it runs over a runtime and an NCCL of tests/support.
OVER_FAKES := src/device/cuda.c src/device/cuda_plugin.c src/comm/nccl.c
PLUGIN_SHARED = -shared -Wl,-soname,$(@F),--exclude-libs,ALL
WHOLE := -Wl,-z,defs
$(BUILD)/libzero_cuda.so: $(PLUGIN) $(KERNELS) $(BUILD)/stamp/LINKED
	$(call link,$(PLUGIN_SHARED) $(WHOLE) $(CUDA_LIBS) $(NCCL_LIBS))

# The model's layers on GPUs, which gpt2 opens for --device cuda. cuBLAS is found where it was.
$(BUILD)/gpt2_cuda.so: $(call obj,$(GPT2_CUDA)) $(GPT2_KERNELS) $(BUILD)/stamp/LINKED
	$(call link,$(PLUGIN_SHARED) $(WHOLE) $(CUDA_LIBS) $(CUBLAS_LIBS) -lm)

# The programs use the public interface alone: examples/gpt2 and examples/common see nothing of
# src/. (Quotas of CPUs and free memory are asked as the library does: tests/layers.txt.)
$(BUILD)/gpt2: $(call obj,$(GPT2) $(COMMON))
$(BUILD)/quickstart: $(call obj,examples/quickstart.c)
# These describe models as gpt2 does.
$(BUILD)/zero: $(call obj,$(TOOL))
$(BUILD)/memscale: $(call obj,$(MEMSCALE))
$(BUILD)/zero $(BUILD)/memscale: $(call obj,$(COMMON) examples/gpt2/tensors.c)
# Of check-scale; with a defect, for tests/planted.sh.
$(BUILD)/tests/big_tensor: $(call obj,tests/big_tensor.c)
$(BUILD)/tests/planted: $(call obj,tests/planted.c)
$(PROGRAMS) $(BUILD)/tests/big_tensor $(BUILD)/tests/planted: $(BUILD)/libzero.a \
		$(BUILD)/stamp/LINKED
	$(call link,$(LIBS))

# Suites note which errors the library has set: tests/support/errors_seen.c.
WRAP := -Wl,--wrap=error_set,--wrap=error_comm,-u,__wrap_error_set

# Backends and models for tests; each suite takes what it uses.
$(BUILD)/libsupport.a: $(call obj,$(SUPPORT)) $(BUILD)/stamp/LINKED
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $(filter %.o,$^)

$(BUILD)/tests/%_test: $(BUILD)/obj/tests/%_test.o $(BUILD)/libsupport.a $(BUILD)/libzero.a \
		$(BUILD)/stamp/LINKED
	$(call link,$(WRAP) $(CHECK_LIBS) $(LIBS))

$(BUILD)/tests/cuda_kernels_on_host: $(HOSTED)
of = $(foreach on,gpu fakes host,$(BUILD)/tests/$(1)_on_$(on))
$(call of,cuda_kernels): $(call obj,tests/cuda_kernels_test.c)
$(call of,cuda): $(call obj,tests/cuda_test.c)
$(call of,gpu_bench): $(call obj,$(wildcard tests/gpu/bench*.c))
$(call of,gpu_faults): $(call obj,tests/gpu/faults.c)
$(call of,gpu_ranks): $(call obj,tests/gpu/ranks.c)
$(ON_FAKES): $(call obj,$(OVER_FAKES))
$(ON_GPU): $(PLUGIN) $(call obj,tests/support/toy_cuda.c) $(KERNELS)
# The runtime and NCCL come before libsupport.a, which has fake ones.
$(ON_GPU) $(GPT2_ON_GPU): LINK = $(CC) $(filter %.o,$^) $(CUDA_LIBS) $(NCCL_LIBS) \
	$(filter %.a,$^) $(LDFLAGS)
$(BUILD)/tests/planted_cuda: $(call obj,tests/planted_cuda.c)
$(BUILD)/tests/cuda_kernels_on_host $(ON_FAKES) $(ON_GPU) $(BUILD)/tests/planted_cuda: \
		$(BUILD)/libsupport.a $(BUILD)/libzero.a $(BUILD)/stamp/LINKED
	$(call link,$(WRAP) $(CHECK_LIBS) $(LIBS))

$(BUILD)/tests/gpt2_kernels_on_host: $(GPT2_HOSTED)
$(BUILD)/tests/gpt2_kernels_on_gpu: $(GPT2_KERNELS)
$(BUILD)/tests/gpt2_kernels_on_%: $(BUILD)/obj/tests/gpt2_kernels_test.o \
		$(call obj,$(filter-out examples/gpt2/main.c,$(GPT2)) $(COMMON)) \
		$(BUILD)/libsupport.a $(BUILD)/libzero.a $(BUILD)/stamp/LINKED
	$(call link,$(WRAP) $(CHECK_LIBS) $(LIBS))

# The model on the kernels by a C++ compiler, and on a GPU.
$(BUILD)/tests/gpu_model_on_host: $(call obj,$(OVER_FAKES)) $(HOSTED) $(GPT2_HOSTED)
$(BUILD)/tests/gpu_model_on_gpu: $(PLUGIN) $(KERNELS) $(GPT2_KERNELS)
$(BUILD)/tests/gpu_model_on_gpu: LINK = $(CC) $(filter %.o,$^) $(CUDA_LIBS) $(CUBLAS_LIBS) \
	$(NCCL_LIBS) $(filter %.a,$^) $(LDFLAGS)
$(BUILD)/tests/gpu_model_on_%: $(BUILD)/obj/tests/gpu_model_test.o \
		$(call obj,$(filter-out examples/gpt2/main.c,$(GPT2)) $(GPT2_CUDA) $(COMMON)) \
		$(BUILD)/libsupport.a $(BUILD)/libzero.a $(BUILD)/stamp/LINKED
	$(call link,$(WRAP) $(CHECK_LIBS) $(LIBS))

# Calls that are made to fail: the linker gives them to tests/support/fault_calls.c.
WRAPPED := $(shell sed -n 's/^[A-Za-z].*__wrap_\([a-z_]*\).*/\1/p' tests/support/fault_calls.c)
$(BUILD)/tests/cuda_fault_test: LINK += -Wl,--wrap=launch_from_bf16 \
	-Wl,--wrap=cudaStreamSynchronize,--wrap=cudaDeviceSynchronize
$(patsubst %,$(BUILD)/tests/%_test,torture cuda_fault nccl): LINK += $(WRAPPED:%=-Wl,--wrap=%)
$(BUILD)/tests/verify_test: LINK += -Wl,--wrap=statx

# These link the trainer as well, all of it but main.
$(patsubst %,$(BUILD)/tests/%_test,model gpu_model gpu_matmul matmul numeric options roofline \
	stop text tokens trace usage): \
	$(call obj,$(filter-out examples/gpt2/main.c,$(GPT2)) $(COMMON))
$(BUILD)/tests/job_test: $(call obj,examples/common/launch.c)
$(BUILD)/tests/sums_test: $(call obj,examples/common/ranks.c)
# These have what the plugin has in them.
$(patsubst %,$(BUILD)/tests/%_test,cuda cuda_fault nccl mpi_cuda): $(call obj,$(OVER_FAKES))
# These the layers on GPUs, over a cuBLASLt and kernels of tests/support.
$(BUILD)/tests/gpu_model_test: $(call obj,$(OVER_FAKES))
$(BUILD)/tests/gpu_model_test $(BUILD)/tests/gpu_matmul_test: $(call obj,$(GPT2_CUDA))
.PRECIOUS: $(BUILD)/obj/%.o

# What a rank of tests/dying.sh is hit by.
$(BUILD)/tests/hit.so: $(BUILD)/obj/tests/hit.o $(BUILD)/stamp/LINKED
	$(call link,-shared -ldl)

# Plugins for tests/plugin_test.c: over fake GPUs, and of other sources; and one for gpt2 that is
# its and the library's in one, as both have to see the same fake GPUs.
FAKES := $(BUILD)/tests/fake/libzero_cuda.so $(BUILD)/tests/other/libzero_cuda.so \
	$(BUILD)/tests/fake/gpt2_cuda.so $(BUILD)/tests/other/gpt2_cuda.so
$(BUILD)/tests/plugin_test: $(FAKES)
$(BUILD)/tests/fake/libzero_cuda.so: $(PLUGIN) $(call obj,tests/fake_plugin.c) \
		$(BUILD)/libsupport.a $(BUILD)/libzero.a
$(BUILD)/tests/other/libzero_cuda.so: $(call obj,tests/other_plugin.c)
$(BUILD)/tests/fake/gpt2_cuda.so: $(PLUGIN) $(call obj,tests/fake_plugin.c $(GPT2_CUDA) \
		$(filter-out examples/gpt2/main.c,$(GPT2)) $(COMMON)) \
		$(BUILD)/libsupport.a $(BUILD)/libzero.a
$(BUILD)/tests/other/gpt2_cuda.so: $(call obj,tests/other_gpt2_plugin.c)
$(FAKES): $(BUILD)/stamp/LINKED
	$(call link,$(PLUGIN_SHARED) $(LIBS))

$(HELPERS): $(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(BUILD)/libsupport.a $(BUILD)/stamp/LINKED
	$(call link,)

# What reads files and options, for tests/fuzz.sh, which builds it with clang.
FUZZED := $(filter-out examples/gpt2/main.c,$(GPT2)) $(COMMON)
$(BUILD)/fuzz/%: $(BUILD)/obj/tests/fuzz/%_fuzz.o $(BUILD)/libfuzzed.a $(BUILD)/libzero.a \
		$(BUILD)/stamp/LINKED
	$(call link,-fsanitize=fuzzer $(LIBS))

$(BUILD)/libfuzzed.a: $(call obj,$(FUZZED)) $(BUILD)/stamp/LINKED
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $(filter %.o,$^)

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)

# ------------------------------------------------------- demo, check, upkeep
# Open MPI as root, with more ranks than cores, and with threads that may move; it has
# other names for these since series 5, and calls those deprecated since 6.
ifeq ($(shell id -u),0)
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1
endif
export OMPI_MCA_rmaps_base_oversubscribe ?= 1
export OMPI_MCA_mpi_yield_when_idle ?= 1
export OMPI_MCA_hwloc_base_binding_policy ?= none
export PRTE_MCA_rmaps_default_mapping_policy ?= :oversubscribe
export PRTE_MCA_hwloc_default_binding_policy ?= none
export PMIX_MCA_mca_base_suppress_deprecated_warning ?= 1

# The demo does not wait for what only tests use.
deps:
	@tests/install.sh $(if $(filter-out demo,$(MAKECMDGOALS)),$(MISSING) $(OPTIONAL), \
		$(filter-out check,$(MISSING)))

# For check-all and what it is made of, which do without them where they cannot be had.
deps-extra:
	@[ $$(uname -m) = aarch64 ] || { command -v aarch64-linux-gnu-gcc && \
		command -v qemu-aarch64; } >/dev/null || tests/install.sh cross || true
	@for name in clang valgrind; do command -v $$name >/dev/null || \
		tests/install.sh $$name || true; done

# What deps installed is found by a make that starts after it, with this one's jobs (+). Beside
# another goal both would build the same files.
AGAIN = $(MAKE) --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
FRONTS = demo check check-all check-scale check-valgrind fuzz check-gpu bench-gpu
ifneq ($(and $(filter $(FRONTS),$(MAKECMDGOALS)),$(word 2,$(MAKECMDGOALS))),)
.NOTPARALLEL:
endif
$(filter-out %-gpu,$(FRONTS)): deps
check-all check-valgrind fuzz: deps-extra
deps-extra: deps
$(FRONTS):
	@+$(AGAIN) $@-now

demo-now: all
	$(if $(filter 1,$(MPI)),$(MPIRUN) -n $(DEMO_RANKS) )$(BUILD)/gpt2 $(DEMO)

# Each prints what the machine can do, what the library does, and the share.
bench: all
	$(BUILD)/zero bench adam
	$(BUILD)/zero bench memory
	$(if $(filter 1,$(MPI)),$(MPIRUN) -n 2 $(BUILD)/zero bench memory)
	$(BUILD)/zero bench io
	$(if $(filter 1,$(MPI)),$(MPIRUN) -n 2 )$(BUILD)/zero bench comm
	ZERO_PROBE=1 $(BUILD)/zero bench step
	$(if $(filter 1,$(MPI)),$(MPIRUN) -n 2 $(BUILD)/zero bench step)
	$(BUILD)/zero bench fixed
	$(if $(filter 1,$(MPI)),$(MPIRUN) -n 2 $(BUILD)/zero bench fixed)

# What others need for the same work; nothing else installs them.
bench-peers: all
	PEERS='$(PEERS)' CC='$(CC)' tests/bench/peers.sh $(BUILD) $(ONLY)

# The larger sizes and what whole runs tell: half an hour, and 50 GB of $TMPDIR for a while.
# tests/bench/largest.sh takes nearly all of the disk: by hand.
bench-full: all
	$(BUILD)/zero bench adam --full
	$(if $(filter 1,$(MPI)),$(MPIRUN) -n 2 )$(BUILD)/zero bench comm --full
	MPIRUN='$(if $(filter 1,$(MPI)),$(MPIRUN))' tests/bench/runs.sh $(BUILD) $(ONLY)

check-gpu-now: gpu-programs
	@MPIRUN='$(if $(filter 1,$(MPI)),$(MPIRUN))' ONLY='$(ONLY)' \
		tests/gpu/check.sh $(if $(FAKE_GPU),--fakes) $(BUILD)
bench-gpu-now: gpu-programs
	@MPIRUN='$(if $(filter 1,$(MPI)),$(MPIRUN))' ONLY='$(ONLY)' \
		tests/gpu/bench.sh $(if $(FAKE_GPU),--fakes) $(BUILD) $(if $(QUICK),--quick)
gpu-bundle:
	@tests/gpu/bundle.sh build-bundle
	@$(if $(PROVE),tests/gpu/bundle.sh --prove build-bundle)

# Suites and where they run.
include tests/suites.mk

chaos: all
	@MPIRUN='$(if $(filter 1,$(MPI)),$(MPIRUN))' tests/chaos.sh $(BUILD)/gpt2 $(ROUNDS) $(SEED)

# One more than cores of the least machine: many suites wait.
check-now check-all-now: JOBS ?= 3
check-now: all tests
	@$(foreach b,$(SANITIZED),$(MAKE) --no-print-directory SAN=$(SAN_$b) BUILD=$(BUILD)-$b \
		$(BUILT_$b) && )true
	@CK_TIMEOUT_MULTIPLIER=5 $(RUN) $(STRUCTURE) $(PTX) $(call sampled,$(BUILD)) \
		$(call short,gpu_model_on_host,$(HOSTED_TEST)) $(GPU_TEST) $(SAN_SAMPLE) \
		$(if $(SAN),,$(MPI_RUNS) $(GPT2_RUNS) $(DYING) "$(MATRIX) check $(BUILD)/gpt2") $(ERRORS_SEEN)

check-all-now: all tests
	@$(foreach b,$(SANITIZED),$(MAKE) --no-print-directory SAN=$(SAN_$b) BUILD=$(BUILD)-$b \
		tests $(BUILT_$b) $(BUILD)-$b/tests/planted $(BUILD)-$b/gpt2 && )true
	@+$(VALGRIND_BUILD)
	@CK_TIMEOUT_MULTIPLIER=5 $(RUN) $(STRUCTURE) $(PTX_SELF) $(PTX_ALL) \
		$(call suites,$(BUILD)) $(HOSTED_TEST) $(GPU_TEST) $(GPU_TEST_ALL) \
		$(MPI_RUNS) $(GPT2_RUNS) $(DYING) \
		$(DYING_ALL) "tests/neighbours.sh more $(BUILD)" \
		"tests/slurm.sh $(BUILD)" $(CHAOS) $(MATRIX_ALL) $(TORTURE_ALL) \
		"tests/cross.sh $(BUILD)-aarch64" "tests/fuzz.sh $(BUILD)-fuzz 70" \
		$(foreach b,$(SANITIZED),$(call sanitized,$b)) $(CUDA_PLANTED) $(VALGRIND_SAMPLE) \
		--then "tests/machine.sh more $(BUILD)" $(ERRORS_SEEN)

check-valgrind-now:
	@$(if $(VALGRIND_BUILD),,echo "There is no valgrind: make deps-extra." >&2; exit 1)
	@+$(VALGRIND_BUILD)
	@CK_TIMEOUT_MULTIPLIER=20 $(RUN) $(VALGRIND_PLANTED) \
		$(call memchecked,$(VALGRIND_SUITES))

check-scale-now: all tests $(BUILD)/tests/big_tensor
	@MPIRUN='$(if $(filter 1,$(MPI)),$(MPIRUN))' tests/scale.sh $(BUILD)

# Installing builds only when nothing is built: src/install.sh says why.
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
install uninstall: export PREFIX := $(PREFIX)
install uninstall: export LIBDIR := $(LIBDIR)
install uninstall: export INCLUDEDIR := $(INCLUDEDIR)
install uninstall: export DESTDIR := $(DESTDIR)
install: $(if $(wildcard $(BUILD)/zero.pc),,all)
.PHONY: install uninstall
install uninstall:
	@src/install.sh $@ $(BUILD)

# Time for all targets together; clang is told what to build by the script.
SECONDS ?= 600
fuzz-now:
	@tests/fuzz.sh $(BUILD)-fuzz $(SECONDS) $(TARGETS)

ptx-report: $(BUILD)/stamp/NVCC_COMPILE
	@tests/ptx_report.sh $(BUILD)

help:
	@sed -n '3,/^$$/s/^# \{0,1\}//p' Makefile

clean:
	rm -rf build build-*

FORCE:
.PHONY: all tests report deps deps-extra demo check check-all demo-now check-now check-all-now
.PHONY: check-scale check-scale-now check-valgrind check-valgrind-now fuzz fuzz-now help
.PHONY: gpu-programs check-gpu check-gpu-now bench-gpu bench-gpu-now gpu-bundle
.PHONY: bench bench-full bench-peers ptx-report chaos clean FORCE
