# SPDX-License-Identifier: Apache-2.0
#
# make            builds the library and the programs into build/
# make demo       installs what is missing, builds, trains a small GPT
# make check      installs what is missing, builds, runs the tests
# make check-all  more of the tests, with sanitizers
# make help       all targets and variables
#
# CC, CFLAGS, LDFLAGS, BUILD, V=1 and SAN=address,undefined|thread are honoured;
# MPI=0, URING=0 and DNNL=0 build without that package.

SHELL := /bin/bash
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:

SAN ?=
BUILD ?= build$(if $(SAN),-$(subst $(comma),-,$(SAN)))
comma := ,
Q := $(if $(V),,@)
say = @$(if $(V),:,printf '  %-7s %s\n' $(1) $(2))

# ------------------------------------------------------------------- probes
# A package is there when a program with it compiles and links.
include tests/probe.mk

# -------------------------------------------------------------------- flags
OPT ?= -O3 -g
CFLAGS ?= $(OPT)
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion
# Bits: no contraction into FMA. Speed: sqrtf may be vectorised.
EXACT := -ffp-contract=off -fno-math-errno
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer)
BASE := -std=gnu11 -D_GNU_SOURCE -I. $(WARN) $(EXACT) -fvisibility=hidden -fPIC -pthread $(SANFLAGS)
DEFS := $(foreach p,MPI URING DNNL,$(if $(filter 1,$($p)),-DHAVE_$p))
INCS := $(MPI_CFLAGS) $(URING_CFLAGS) $(DNNL_CFLAGS)
COMPILE = $(CC) $(BASE) $(DEFS) $(INCS) $(CFLAGS) -MMD -MP
LIBS := $(MPI_LIBS) $(URING_LIBS) -lm -pthread

# ------------------------------------------------------------------ sources
CORE := $(wildcard src/*.c src/device/*.c src/comm/*.c offload/*.c kernels/*.c)
ifneq ($(MPI),1)
CORE := $(filter-out src/comm/mpi.c,$(CORE))
endif
ifneq ($(URING),1)
CORE := $(filter-out offload/uring.c,$(CORE))
endif
CORE += kernels/cpu/scalar.c
ifneq ($(filter x86_64%,$(shell $(CC) -dumpmachine)),)
CORE += kernels/cpu/avx2.c kernels/cpu/avx512.c
endif
COMMON := $(wildcard examples/common/*.c)
GPT2 := $(wildcard examples/gpt2/*.c)
SUPPORT := $(wildcard tests/support/*.c)
SUITES := $(patsubst tests/%.c,%,$(wildcard tests/*_test.c))

obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))

PROGRAMS := $(BUILD)/gpt2 $(BUILD)/quickstart
TESTS := $(SUITES:%=$(BUILD)/tests/%)

all: $(BUILD)/libzero.a $(BUILD)/libzero.so $(PROGRAMS)
tests: $(TESTS)

$(BUILD)/obj/kernels/cpu/avx2.o: CFLAGS += -mavx2
$(BUILD)/obj/kernels/cpu/avx512.o: CFLAGS += -mavx512f -mavx512bw -mavx512dq -mavx512vl

$(BUILD)/obj/%.o: %.c Makefile
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -c $< -o $@

$(BUILD)/libzero.a: $(call obj,$(CORE))
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^

$(BUILD)/libzero.so: $(call obj,$(CORE))
	$(call say,LD,$@)
	$(Q)$(CC) -shared $(SANFLAGS) $^ $(LDFLAGS) $(LIBS) -o $@

# The programs use the public interface alone: examples/gpt2 and examples/common
# see nothing of src/.
$(BUILD)/gpt2: $(call obj,$(GPT2) $(COMMON)) $(BUILD)/libzero.a
	$(call say,LD,$@)
	$(Q)$(CC) $(SANFLAGS) $^ $(LDFLAGS) $(DNNL_LIBS) $(LIBS) -o $@

$(BUILD)/quickstart: $(call obj,examples/quickstart.c) $(BUILD)/libzero.a
	$(call say,LD,$@)
	$(Q)$(CC) $(SANFLAGS) $^ $(LDFLAGS) $(LIBS) -o $@

# Model tests link the trainer's model as well (all of it but main).
MODEL := $(call obj,$(filter-out examples/gpt2/main.c,$(GPT2)) $(COMMON))
$(BUILD)/tests/%_test: $(BUILD)/obj/tests/%_test.o $(call obj,$(SUPPORT)) $(MODEL) $(BUILD)/libzero.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(SANFLAGS) $^ $(LDFLAGS) $(CHECK_LIBS) $(DNNL_LIBS) $(LIBS) -o $@

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)

clean:
	rm -rf build build-*

.PHONY: all tests clean
