#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Feeds what reads files and options with made-up bytes, under libFuzzer with
# AddressSanitizer and UBSan:
#     tests/fuzz.sh BUILD SECONDS [TARGET...]
# builds tests/fuzz/*_fuzz.c with clang in BUILD, gives each its inputs of
# tests/fuzz/corpus again, and then new ones for its share of SECONDS. What is
# found on the way stays in BUILD/corpus and is where the next run goes on. An
# input that fails stays in BUILD/failed, and the command that repeats it is
# printed; it belongs into tests/fuzz/corpus with the fix. Without clang it skips.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/support/verdicts.sh
build=${1:?a build folder of its own}
seconds=${2:?seconds in all}
shift 2
cc=${FUZZ_CC:-clang}

targets=("$@")
if [ $# = 0 ]; then
    mapfile -t targets < <(basename -a -s _fuzz.c tests/fuzz/*_fuzz.c)
fi
for target in "${targets[@]}"; do
    [ -e "tests/fuzz/${target}_fuzz.c" ] && continue
    echo "tests/fuzz.sh: there is no tests/fuzz/${target}_fuzz.c."
    exit 1
done

# A skip is a check that passed, or tests/run.sh would miss one.
skip_all() {
    echo "skipped: fuzzing: $1"
    echo "100%: Checks: 1, Failures: 0, Errors: 0"
    exit 0
}
command -v "$cc" >/dev/null || skip_all "no $cc (make deps-extra installs it)"
echo 'int LLVMFuzzerTestOneInput(void); int LLVMFuzzerTestOneInput(void) { return 0; }' |
    "$cc" -fsanitize=fuzzer,address,undefined -x c - -o "$scratch/probe" 2>"$scratch/log" ||
    skip_all "$cc links no program with -fsanitize=fuzzer: $(tail -n 1 "$scratch/log")"

# What the make that runs this was told does not hold for another compiler.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES
mkdir -p "$build/failed" || exit 1
make --no-print-directory -j"$(nproc)" CC="$cc" BUILD="$build" MPI=0 URING=0 CUDA=0 \
    SAN=address,undefined,fuzzer-no-link CFLAGS='-O1 -g -Werror' "${targets[@]/#/$build/fuzz/}" \
    >"$build/fuzz.log" 2>&1 || {
    tail -n 20 "$build/fuzz.log"
    echo "tests/fuzz.sh: $cc could not build the targets; $build/fuzz.log has it all."
    exit 1
}

# No input may take a minute, nor 256 MiB at once.
export TMPDIR=$scratch
limits=(-timeout=60 -malloc_limit_mb=256 -rss_limit_mb=1024)

# Gives one target some inputs, and says how to do it again where that fails.
give() { # target, what is wrong, arguments...
    local target=$1 log=$scratch/$1 status input
    "$build/fuzz/$target" "${limits[@]}" -artifact_prefix="$build/failed/$target-" "${@:3}" \
        >"$log" 2>&1 </dev/null
    status=$?
    verdict $status "$target: $2"
    [ $status != 0 ] || return 0
    grep -v '^#' "$log" | tail -n 60
    input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    # One of the corpus is not written anew, but named before it is run.
    [ -n "$input" ] || input=$(sed -n 's/^Running: //p' "$log" | tail -n 1)
    echo "To repeat it: $build/fuzz/$target $input"
    return 1
}

share=$((seconds / ${#targets[@]}))
[ $share -gt 0 ] || share=1
for target in "${targets[@]}"; do
    mkdir -p "$build/corpus/$target"
    give "$target" "an input of tests/fuzz/corpus fails" tests/fuzz/corpus/"$target"/* || continue
    give "$target" "an input that was made up fails" -max_total_time="$share" -print_final_stats=1 \
        -use_value_profile=1 "$build/corpus/$target" "tests/fuzz/corpus/$target" || continue
    awk -v target="$target" '
        /cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") cov = $(i + 1)
                  else if ($i == "ft:") features = $(i + 1) }
        /number_of_executed_units/ { runs = $2 }
        /new_units_added/ { units = $2 }
        END { printf "%s: %d inputs, %d edges, %d features, %d inputs kept\n", target, runs, cov,
              features, units }' "$scratch/$target"
done
closing
