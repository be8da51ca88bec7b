# SPDX-License-Identifier: Apache-2.0
# Sourced by what runs programs that were built under a sanitizer: what Open MPI
# does that is not ours to mend is overlooked, and nothing of ours;
# tests/planted.sh sees to both. It runs nothing of ours.
# shellcheck shell=bash

# TSan of gcc 11 to 13, and ASan now and then, use no memory that is laid out with more than 28
# random bits.
# shellcheck disable=SC2034 # for those who source this
laid_out=()
if [ "$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 0)" -gt 28 ] &&
    setarch -R true 2>/dev/null; then
    laid_out=(setarch -R)
fi

# A race is reported where our code meets itself, not inside libraries that were
# built without TSan. A leak is known as Open MPI's by the frames below malloc,
# which are found without frame pointers.
suppressions=$(cd "${BASH_SOURCE[0]%/*}" && pwd) || exit 1
export UCX_VFS_ENABLE=${UCX_VFS_ENABLE:-n} # a thread of Open MPI 5 that it does not wait for
export TSAN_OPTIONS=${TSAN_OPTIONS:-ignore_noninstrumented_modules=1}
# gcc 13.2 moves what a kernel keeps in registers to a stack of ASan's own, misaligned.
export ASAN_OPTIONS=${ASAN_OPTIONS:-fast_unwind_on_malloc=0:detect_stack_use_after_return=0}
export LSAN_OPTIONS="${LSAN_OPTIONS:-suppressions=\"$suppressions/lsan.supp\":print_suppressions=0}"
