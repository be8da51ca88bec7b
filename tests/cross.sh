#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The kernels and gpt2's rows of 64-bit ARM on a machine that is not one:
# tests/cross.sh BUILD builds their suites with Debian's cross compiler, in BUILD,
# and runs them under qemu: scalar and NEON against the references. Without compiler
# or emulator (make deps-extra) it skips. It does not say how fast they are.
# --self-test: that what takes the place of Check still has all that they use.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:?a build folder of its own, or --self-test}
cc=${CROSS_CC:-aarch64-linux-gnu-gcc}
emulator=${CROSS_RUN:-qemu-aarch64}
suites=(kernels_test formats_test numeric_test)
support="tests/support/kernels.c tests/support/suite.c tests/support/errors_seen.c"

if [ "$build" = --self-test ]; then
    read -ra sources <<<"tests/kernels_test.c tests/formats_test.c tests/numeric_test.c $support"
    ${CC:-cc} -std=gnu11 -D_GNU_SOURCE -I. -Itests/cross -Wall -Werror -fsyntax-only \
        "${sources[@]}" && echo "100%: Checks: 1, Failures: 0, Errors: 0"
    exit
fi

# A skip is a check that passed, or tests/run.sh would miss one.
skip() {
    echo "skipped: the kernels for NEON: $1"
    echo "100%: Checks: 1, Failures: 0, Errors: 0"
    exit 0
}

case $(uname -m) in
aarch64) skip "this machine has them, so the ordinary suites ran them" ;;
esac
for tool in "$cc" "$emulator"; do
    command -v "$tool" >/dev/null || skip "no $tool (make deps-extra installs it)"
done
mkdir -p "$build" || exit 1
log=$build/cross.log
echo 'int main(void) { return 0; }' | "$cc" -static -x c - -o "$build/probe" 2>"$log" ||
    skip "$cc links no program: $(tail -n 1 "$log")"
"$emulator" "$build/probe" 2>"$log" || skip "$emulator runs no program: $(tail -n 1 "$log")"

# What the make that runs this was told does not hold for another machine.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES
make --no-print-directory -j"$(nproc)" CC="$cc" BUILD="$build" MPI=0 URING=0 CUDA=0 \
    CHECK=1 CHECK_CFLAGS= CHECK_LIBS= SUPPORT="$support" \
    CFLAGS="-O3 -g -Werror -Itests/cross" LDFLAGS=-static \
    "${suites[@]/#/$build/tests/}" >"$log" 2>&1 || {
    tail -n 20 "$log"
    echo "tests/cross.sh: $cc could not build the suites; $log has it all."
    exit 1
}

status=0
for suite in "${suites[@]}"; do
    "$emulator" "$build/tests/$suite" || status=1
done
exit $status
