# SPDX-License-Identifier: Apache-2.0
# Which suites there are and where each runs, as arguments of tests/run.sh: what
# the Makefile's check, check-all, check-valgrind and chaos put together.

# Suites named mpi* start MPI and run on 1 to 4 ranks.
STRUCTURE := "tests/run.sh --self-test" "tests/install.sh --self-test" \
	"tests/cross.sh --self-test" tests/flags.sh \
	$(foreach s,style layers errors shell,"tests/check_$s.sh --self-test" tests/check_$s.sh)
HOSTED_TEST := $(filter %_on_host,$(CUDA_TESTS))
# What is for machines with GPUs, over the runtime for tests.
GPU_TEST := $(BUILD)/tests/gpu_faults_on_fakes "tests/gpu/check_test.sh $(BUILD)" \
	$(if $(filter 1,$(MPI)),"ZERO_TEST_SHORT=1 2@$(BUILD)/tests/gpu_ranks_on_fakes")
GPU_TEST_ALL := $(if $(filter 1,$(MPI)),1@$(BUILD)/tests/gpu_ranks_on_fakes \
	3@$(BUILD)/tests/gpu_ranks_on_fakes)
PTX := $(if $(KERNELS),"tests/ptx_report.sh $(BUILD) kernels/cuda")
PTX_ALL := $(if $(GPT2_KERNELS),"tests/ptx_report.sh $(BUILD)",$(PTX))
PTX_SELF := $(if $(KERNELS),"tests/ptx_report.sh --self-test $(BUILD)")
suites = $(filter-out $(1)/tests/mpi%,$(SUITES:%=$(1)/tests/%))
short = $(patsubst %/$(1),"ZERO_TEST_SHORT=1 %/$(1)",$(2))
sampled = $(call short,bootstrap_test,$(call short,soak_test,$(call short,cuda_test, \
	$(call short,gpu_model_test,$(call short,nccl_test,$(call suites,$(1)))))))
mpi_suites = $(foreach n,$(2),$(patsubst %,$(n)@$(1)/tests/%,$(filter mpi%,$(SUITES))))
# One rank transfers nothing.
MPI_RUNS := $(filter-out 1@%/mpi_large_test,$(call mpi_suites,$(BUILD),1 2 3 4)) \
	$(patsubst %,6@$(BUILD)/tests/%,$(filter mpi_test,$(SUITES))) # on three nodes, it makes believe
RUN = TIMEOUT=$(TIMEOUT) MPIRUN='$(if $(filter 1,$(MPI)),$(MPIRUN))' MPICC='$(MPICC)' \
	SAN='$(SAN)' ONLY='$(ONLY)' JOBS='$(JOBS)' tests/run.sh

# Suites that run programs as users do, under mpirun where there is one.
MATRIX := tests/equal/matrix.sh
HIT := $(if $(filter 1,$(MPI)),$(BUILD)/tests/hit.so)
DYING = $(if $(HIT),"tests/dying.sh --self-test" "tests/dying.sh $(BUILD)/gpt2 $(HIT)")
DYING_ALL = $(if $(HIT),"tests/dying.sh $(BUILD)/gpt2 $(HIT) all")
GPT2_RUNS = "tests/quickstart.sh $(BUILD)" "tests/install_test.sh $(BUILD)" \
	"$(MATRIX) --self-test $(BUILD)/gpt2" \
	"tests/wrong_use.sh --self-test" "tests/wrong_use.sh $(BUILD)/gpt2" \
	"tests/memory.sh --self-test" "tests/memory.sh $(BUILD)/gpt2" \
	"tests/machine.sh --self-test" "tests/neighbours.sh --self-test" \
	"tests/chaos.sh --self-test" \
	"tests/machine.sh check $(BUILD)" "tests/neighbours.sh check $(BUILD)" \
	"tests/gpu_model.sh $(BUILD)" $(if $(filter 1,$(NCCL)),"tests/processes.sh $(BUILD)") \
	"tests/plan.sh $(BUILD)/gpt2" "tests/training.sh $(BUILD)/gpt2" \
	"tests/checkpoint.sh $(BUILD)/gpt2" \
	"tests/trace.sh $(BUILD)/gpt2" "tests/verify.sh $(BUILD)/gpt2" \
	"tests/tool_test.sh --self-test" "tests/tool_test.sh $(BUILD)/zero" \
	"tests/memscale.sh $(BUILD)"
GROUPS = $(shell awk '$$1 == "model" { print $$2 }' tests/equal/matrix.txt)
MATRIX_ALL = $(foreach g,$(GROUPS),"$(MATRIX) all $(BUILD)/gpt2 $g")

# Real runs, real faults: make chaos draws many of them, check-all a few.
ROUNDS ?= 200
SEED ?= 1
CHAOS := "tests/chaos.sh $(BUILD)/gpt2 15"

# Every place where a fault can strike, scenario by scenario.
TORTURES = $(or $(shell sed -n 's/^    {"\([a-z0-9-]*\)",.*/\1/p' tests/torture_test.c), \
	$(error tests/torture_test.c has no scenarios that are found))
TORTURE_ALL = $(foreach s,$(TORTURES) creation no-engine, \
	"ZERO_TEST_FULL=1 CK_RUN_CASE=$s $(BUILD)/tests/torture_test")

# The last of all: which errors the suites have provoked. A sanitizer refuses no memory, and some
# sites all of io_uring.
BUILT_WITH = $(foreach p,MPI URING XXHASH,$(if $(filter 1,$($p)),$p)) \
	$(if $(shell $(BUILD)/zero info | grep 'io_uring  *refused'),refused:URING)
ERRORS_SEEN = $(if $(SAN),,--then "tests/check_errors.sh --seen $(BUILT_WITH)")

# The law under the sanitizers, a sample of it, and the order of work on GPUs.
SANITIZED = $(eval SANITIZED := $(if $(SAN),,$(shell tests/support/sanitized.sh $(BUILD) \
	'$(CC)' address thread)))$(SANITIZED)
SAN_address := address,undefined
SAN_thread := thread
BUILT_address = $(BUILD)-address/tests/equal_test
BUILT_thread = $(addprefix $(BUILD)-thread/tests/,equal_test cuda_test nccl_test fake_cuda_test \
	planted_cuda)
CUDA_PLANTED = $(if $(filter thread,$(SANITIZED)),"tests/planted.sh cuda $(BUILD)-thread")
SAN_SAMPLE = $(foreach b,$(SANITIZED),"ZERO_TEST_SHORT=1 $(BUILD)-$b/tests/equal_test") \
	$(if $(filter thread,$(SANITIZED)),"ZERO_TEST_SHORT=1 $(BUILD)-thread/tests/cuda_test" \
	"ZERO_TEST_SHORT=1 $(BUILD)-thread/tests/nccl_test" \
	$(BUILD)-thread/tests/fake_cuda_test $(CUDA_PLANTED))

# Under a sanitizer a sample of the long products is enough, of numbers of ranks, and
# of transfers that are long because counts are. A GPU that fails orders nothing any more.
sanitized = $(patsubst %,"ZERO_TEST_SHORT=1 %", \
	$(filter-out %-thread/tests/cuda_fault_test,$(call suites,$(BUILD)-$(1))) \
	$(filter-out 3@%/mpi_large_test %-thread/tests/mpi_large_test, \
	$(call mpi_suites,$(BUILD)-$(1),2 3) $(patsubst %,4@$(BUILD)-$(1)/tests/%, \
	$(filter mpi_test,$(SUITES))))) "tests/planted.sh $(1) $(BUILD)-$(1) $(BUILD)"

# Under valgrind all suites but those that take very long there (a core is thirty times slower,
# and threads share it); memory and soak, which watch memory that valgrind takes; and refused,
# whose malloc valgrind puts its own in place of.
VALGRIND_OUT := arithmetic async bootstrap comm disk equal features formats frozen gpu_model \
	kernels memory model mpi_large refused schedule soak tcp
memchecked = $(patsubst %,"ZERO_TEST_SHORT=1 tests/valgrind.sh $(BUILD)-valgrind/tests/%", \
	$(filter-out mpi%,$(1))) \
	$(patsubst %,"2@tests/valgrind.sh $(BUILD)-valgrind/tests/%",$(filter mpi%,$(1)))
VALGRIND_SUITES := $(filter-out $(VALGRIND_OUT:%=%_test),$(SUITES))
VALGRIND_PLANTED = "tests/planted.sh valgrind $(BUILD)-valgrind"
VALGRIND_SAMPLE = $(if $(shell command -v valgrind),$(VALGRIND_PLANTED) $(call memchecked, \
	$(filter numa_test options_test ring_core_test mpi_level_test,$(VALGRIND_SUITES))))
VALGRIND_BUILD = $(if $(shell command -v valgrind),$(MAKE) --no-print-directory VALGRIND=1 \
	BUILD=$(BUILD)-valgrind tests $(BUILD)-valgrind/tests/planted)
