# SPDX-License-Identifier: Apache-2.0
# What this machine has: MPI, URING, DNNL, CHECK are 1 or 0, with flags.

PKG_CONFIG ?= pkg-config
probe = $(shell printf '%s\n' '\#include <$(1)>' 'int main(void){return 0;}' \
	| $(CC) -x c - $(2) -o /dev/null 2>/dev/null && echo 1 || echo 0)

MPI_CFLAGS := $(shell $(PKG_CONFIG) --cflags ompi-c 2>/dev/null || mpicc --showme:compile 2>/dev/null)
MPI_LIBS := $(shell $(PKG_CONFIG) --libs ompi-c 2>/dev/null || mpicc --showme:link 2>/dev/null)
URING_LIBS := -luring
DNNL_LIBS := -ldnnl
CHECK_LIBS := $(shell $(PKG_CONFIG) --libs check 2>/dev/null || echo -lcheck)

MPI ?= $(call probe,mpi.h,$(MPI_CFLAGS) $(MPI_LIBS))
URING ?= $(call probe,liburing.h,$(URING_LIBS))
DNNL ?= $(call probe,oneapi/dnnl/dnnl.h,$(DNNL_LIBS))
CHECK ?= $(call probe,check.h,$(CHECK_LIBS))

ifneq ($(MPI),1)
MPI_CFLAGS :=
MPI_LIBS :=
endif
ifneq ($(URING),1)
URING_LIBS :=
endif
ifneq ($(DNNL),1)
DNNL_LIBS :=
endif
