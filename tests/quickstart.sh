#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The header's example, and the header:
#     tests/quickstart.sh BUILD
# runs examples/quickstart at each stage, alone and on MPI ranks where there is
# MPI, and demands one digest and a falling loss; the header is C11 and C++17.
set -u
export LC_ALL=C
build=$(realpath "${1:?the build folder}") || exit 1
cd "$(dirname "$0")/.." || exit 1
. tests/support/verdicts.sh

same_digest() { # command...
    timeout 60 "$@" >"$scratch/out" 2>&1
    verdict $? "$* failed: $(tail -n 1 "$scratch/out")"
    grep '^digest ' "$scratch/out" >"$scratch/digest"
    [ -s "$scratch/first" ] || cp "$scratch/digest" "$scratch/first"
    [ -s "$scratch/digest" ] && cmp -s "$scratch/digest" "$scratch/first"
    verdict $? "$*: $(cat "$scratch/digest"), expected $(cat "$scratch/first")"
}

for stage in 0 1 2 3; do
    same_digest "$build/quickstart" $stage
done
if [ ${#launcher[@]} != 0 ] && nm -D "$build/quickstart" | grep -q MPI_Init_thread; then
    same_digest "${launcher[@]}" -n 2 "$build/quickstart" 3
    same_digest "${launcher[@]}" -n 4 "$build/quickstart" 1
else
    echo "skipped: MPI ranks, for want of MPI"
fi
for stage in abc 3x "1 2" 7; do
    timeout 60 "$build/quickstart" "$stage" >"$scratch/none" 2>"$scratch/err"
    [[ $? == [12] ]] && [ ! -s "$scratch/none" ] && [ "$(wc -l <"$scratch/err")" = 1 ]
    verdict $? "quickstart '$stage': $(cat "$scratch/none" "$scratch/err")"
done
timeout 60 "$build/quickstart" >/dev/full 2>"$scratch/err"
[ $? = 1 ] && grep -qx 'Standard output could not be written\.' "$scratch/err"
verdict $? "quickstart >/dev/full: $(cat "$scratch/err")"
awk '/^step/ { last = $NF; if (!first) first = last }
     END { exit !(first > 0.2 && last < 0.7 * first) }' "$scratch/out"
verdict $? "the loss does not fall: $(grep ^step "$scratch/out" | tr '\n' ';')"

# Behind a failure there are no parameters, or no gradients: it says so and ends.
for call in zero_param_data zero_grad_data; do
    printf '#include "include/zero.h"\n%s { (void)z; return tensor < 0 ? z : NULL; }\n%s\n%s\n' \
        'static void *none(struct zero *z, int tensor)' "#define $call none" \
        "#include \"$PWD/examples/quickstart.c\"" >"$scratch/none.c"
    ${CC:-cc} -std=gnu11 -I. -o "$scratch/none" "$scratch/none.c" "$build/libzero.so" \
        -Wl,-rpath,"$build" -lm && ! timeout 60 "$scratch/none" >"$scratch/err" 2>&1 &&
        [ "$(wc -l <"$scratch/err")" = 1 ] && grep -q '^no [pg]' "$scratch/err"
    verdict $? "quickstart where $call is NULL: $(cat "$scratch/err")"
done

# A rank's number on its node: README and zero.h name what examples/common/launch.c knows, in its
# order, Slurm's last, which a batch script has too.
local='LOCAL_?(RANK|RANKID|ID)'
grep -oE "\"[A-Z0-9_]*$local\"" examples/common/launch.c | tr -d '"' | awk '!seen[$0]++' |
    awk '/SLURM/ { last = $0; next } 1; END { print last }' >"$scratch/known"
grep -oE 'getenv\("[A-Z0-9_]+' README.md | cut -d'"' -f2 | cmp -s - "$scratch/known"
verdict $? "README does not list $(tr '\n' ' ' <"$scratch/known")"
tr '\n' ' ' <include/zero.h | grep -oE '\(LOCAL_RANK[^:]*: the first set' |
    grep -oE "[A-Z0-9_]*$local" | cmp -s - "$scratch/known"
verdict $? "zero.h does not list $(tr '\n' ' ' <"$scratch/known")"

cat >"$scratch/header.c" <<'CODE'
#include "include/zero.h"
extern uint64_t sequence_of(const struct zero_collective *c);
uint64_t sequence_of(const struct zero_collective *c)
{
    struct zero_collective_header header = c->header;
    return header.sequence;
}
CODE
strict=(-Wall -Wextra -Wpedantic -Werror -I. -o "$scratch/header.o" -c)
${CC:-cc} -std=c11 "${strict[@]}" "$scratch/header.c"
verdict $? "zero.h is not clean C11"
if command -v c++ >/dev/null; then
    cp "$scratch/header.c" "$scratch/header.cpp"
    c++ -std=c++17 "${strict[@]}" "$scratch/header.cpp"
    verdict $? "zero.h is not clean C++17"
else
    echo "skipped: C++17, for want of a compiler"
fi

closing
