# SPDX-License-Identifier: Apache-2.0
# What this machine has: CC_WORKS, MPI, URING, XXHASH, CHECK, CUDA, CUBLAS and NCCL are 1 or
# 0, with the flags of what is there. MISSING names for tests/install.sh what is not,
# OPTIONAL what only some tests would use, ABSENT both, and what the caller has
# switched off (MPI=0). Every package is tried once.

# A folder that make gpu-bundle has made stands in for packages that a machine lacks.
BUNDLE ?=
ifneq ($(BUNDLE),)
BUNDLED := $(abspath $(BUNDLE))
MPIRUN := $(BUNDLED)/bin/mpirun
MPI_SHOWN := -I$(BUNDLED)/openmpi/include -L$(BUNDLED)/openmpi/lib \
	-Wl,-rpath,$(BUNDLED)/openmpi/lib -lmpi
# Its libraries need each other, and do not know where they are.
export LD_LIBRARY_PATH := $(BUNDLED)/openmpi/lib$(addprefix :,$(LD_LIBRARY_PATH))
URING_CFLAGS := -isystem $(BUNDLED)/include
URING_LIBS := -L$(BUNDLED)/lib -luring
XXHASH_CFLAGS := -isystem $(BUNDLED)/include
CHECK_CFLAGS := -isystem $(BUNDLED)/include
CHECK_LIBS := -L$(BUNDLED)/lib -lcheck -lsubunit -lrt -lm -pthread
endif

PKG_CONFIG ?= pkg-config
ifeq ($(origin CXX),default)
CXX := $(or $(firstword $(foreach c,g++ c++ clang++,$(if $(shell command -v $c),$c))),g++)
endif
hash := \#

# A program, or where Fedora and RHEL keep it until module load mpi.
mpi_program = $(or $(shell command -v $(1)),$(wildcard /usr/lib64/openmpi/bin/$(1)))
MPIRUN ?= $(or $(call mpi_program,mpirun),mpirun)
MPICC ?= $(or $(call mpi_program,mpicc),mpicc)

# A package is there when a program with its header compiles and links; the third
# word is what the header must declare, where older ones did not.
probe = $(shell printf '%s\n' '$(hash)include <$(1)>' \
	'int main(void) { return !sizeof(&$(or $(3),main)); }' \
	| $(CC) -x c - $(2) -o /dev/null 2>/dev/null && echo 1 || echo 0)

# $(call find,VARIABLE,header,package[,declares])
define find
ifndef $(1)
$(1) := $$(call probe,$(2),$$($(1)_CFLAGS) $$($(1)_LIBS),$(4))
MISSING += $$(if $$(filter 0,$$($(1))),$(3))
endif
ABSENT += $$(if $$(filter 0,$$($(1))),$(3))
ifneq ($$($(1)),1)
$(1)_CFLAGS :=
$(1)_LIBS :=
endif
endef

CC_WORKS := $(call probe,stdio.h)
CC_MACHINE := $(shell $(CC) -dumpmachine 2>/dev/null)
MISSING := $(if $(filter 0,$(CC_WORKS)),cc)
ABSENT := $(MISSING)

# The wrapper of any MPI prints the command it stands for; our own compiler is
# used with its flags.
MPI_SHOWN ?= $(shell $(MPICC) -show 2>/dev/null || $(PKG_CONFIG) --cflags --libs ompi-c 2>/dev/null)
MPI_SHOWN := $(MPI_SHOWN)
MPI_CFLAGS := $(filter -I% -D%,$(MPI_SHOWN))
MPI_LIBS := $(filter -L% -l% -Wl%,$(MPI_SHOWN))
$(eval $(call find,MPI,mpi.h,mpi))
ifeq ($(MPI) $(shell command -v $(MPIRUN)),1 )
MISSING += mpirun
ABSENT += mpirun
endif

URING_LIBS ?= -luring
$(eval $(call find,URING,liburing.h,uring))

# Of xxHash the header is all: no library is linked.
$(eval $(call find,XXHASH,xxhash.h,xxhash,XXH3_64bits))

CHECK_CFLAGS ?= $(filter -I%,$(shell $(PKG_CONFIG) --cflags check 2>/dev/null))
CHECK_CFLAGS := $(CHECK_CFLAGS)
# Check is a static library in Debian, so what it needs is named as well.
CHECK_LIBS ?= $(shell $(PKG_CONFIG) --libs check 2>/dev/null || echo -lcheck -lsubunit -lrt -lm)
CHECK_LIBS := $(CHECK_LIBS)
$(eval $(call find,CHECK,check.h,check))

# The toolkit, whose compiler takes seconds: that it works the first kernel shows. It is
# gigabytes, so make deps leaves it to the site. Kernels are launched as from CUDA 11.8 on.
nvcc_given := $(wildcard $(addsuffix /bin/nvcc,$(CUDA_HOME)))
NVCC ?= $(or $(nvcc_given),$(shell command -v nvcc),$(wildcard /usr/local/cuda/bin/nvcc))
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
CUDA_CFLAGS := $(addprefix -isystem ,$(wildcard $(filter-out /usr,$(CUDA_HOME))/include))
CUDA_LIBS := $(addprefix -L,$(wildcard $(CUDA_HOME)/lib64)) -lcudart_static -ldl -lrt -lpthread
ifndef CUDA
CUDA := $(if $(NVCC),$(call \
	probe,cuda_runtime_api.h,$(CUDA_CFLAGS) $(CUDA_LIBS),cudaLaunchKernelExC),0)
endif
ifneq ($(CUDA),1)
CUDA_CFLAGS :=
CUDA_LIBS :=
endif
ABSENT += $(if $(filter 1,$(CUDA)),,cuda)

# Its shared libraries are found where they were, also by who does not know its folder.
CUDA_RPATH := $(patsubst -L%,-Wl$(comma)-rpath$(comma)%,$(filter -L%,$(CUDA_LIBS)))

# NCCL, which without the toolkit nobody asks for.
NCCL_LIBS := $(CUDA_RPATH) -lnccl
ifndef NCCL
NCCL := $(if $(filter 1,$(CUDA)),$(call \
	probe,nccl.h,$(CUDA_CFLAGS) $(NCCL_LIBS) $(CUDA_LIBS),ncclCommFinalize),0)
endif
ifneq ($(NCCL),1)
NCCL_LIBS :=
endif
ABSENT += $(if $(filter 10,$(CUDA)$(NCCL)),nccl)

# cuBLAS is of the toolkit, but some sites leave it out.
CUBLAS_LIBS := $(filter -L%,$(CUDA_LIBS)) $(CUDA_RPATH) -lcublasLt
ifndef CUBLAS
CUBLAS := $(if $(filter 1,$(CUDA)),$(call probe,cublasLt.h,$(CUDA_CFLAGS) $(CUBLAS_LIBS)),0)
endif
ABSENT += $(if $(filter 1,$(CUDA)),$(if $(filter 1,$(CUBLAS)),,cublas))

OPTIONAL := $(if $(shell command -v $(CXX)),,cxx) \
	$(if $(shell command -v $(PKG_CONFIG)),,pkgconfig) $(if $(shell command -v strace),,strace)

MISSING := $(strip $(MISSING))
ABSENT := $(strip $(ABSENT) $(OPTIONAL))
