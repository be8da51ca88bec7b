#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What runs on a machine with a GPU, here: tests/gpu/check_test.sh BUILD
# Without a GPU nothing passes and nothing is measured; what is cut off goes on; what fails is
# told; the bench makes its tables over the runtime for tests.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "${1:?"give the build folder: tests/gpu/check_test.sh BUILD"}") || exit 1
. tests/support/verdicts.sh
unset ONLY RESULTS ROWS ROW_SECONDS

# A machine that has none, though its driver may be there.
without() {
    # shellcheck disable=SC2016 # make's
    local script status loader show='show:;@echo $(NVCC)'
    local bare=(env -u CUDA_HOME -u NVCC -u MAKEFLAGS)
    "${bare[@]}" make report >"$scratch/out" 2>&1
    verdict $? "make without CUDA_HOME: $(cat "$scratch/out")"
    mkdir -p "$scratch/toolkit/bin" && : >"$scratch/toolkit/bin/nvcc"
    [ "$("${bare[@]}" make -s --eval="$show" CUDA=0 CUDA_HOME="$scratch/toolkit" show)" = \
        "$scratch/toolkit/bin/nvcc" ]
    verdict $? "CUDA_HOME does not choose the compiler"
    make -n CHECK=0 gpu-programs 2>&1 | grep -q 'The tests need Check: '
    verdict $? "without Check nothing says so"
    [ -e "$build/libzero_cuda.so" ] || { echo "skipped: no CUDA toolkit" && return; }
    loader=$(ldd "$build/tests/plugin_test" | awk '/ld-linux/ { print $1 }')
    ZERO_CUDA_PLUGIN=$build/libzero_cuda.so "$loader" --inhibit-cache \
        "$build/tests/plugin_test" --use 0 >"$scratch/out"
    ! grep 'cannot be opened' "$scratch/out" && grep -q '^ZERO_' "$scratch/out"
    verdict $? "the plugin needs libraries from folders that the loader was told of: $(
        cat "$scratch/out")"
    for script in check bench; do
        CUDA_VISIBLE_DEVICES='' "tests/gpu/$script.sh" "$build" >"$scratch/out" 2>&1
        status=$?
        [ $status = 77 ] && grep -q 'there is no GPU here that answers.*No GPU can be used' \
            "$scratch/out" && ! grep -q '100%\|passed' "$scratch/out"
        verdict $? "$script.sh without a GPU: status $status, $(cat "$scratch/out")"
    done
}

suite() { # name, what it does
    local program=$scratch/b/tests/$1_on_fakes
    printf '#!/bin/sh\necho "%s" >>%s/ran\n%s\n' "$1" "$scratch" "$2" >"$program"
    chmod +x "$program"
}

ran() { # status, programs that have run, what is told
    local status=$2
    [ "$status" = "$1" ] && [ "$(xargs <"$scratch/ran")" = "$3" ] && grep -q "$4" "$scratch/out"
    verdict $? "status $status, not $1; ran $(xargs <"$scratch/ran"), not $3; $(cat "$scratch/out")"
    : >"$scratch/ran"
}

again() { # variables
    env "$@" MPIRUN="$scratch/mpirun" tests/gpu/check.sh --fakes "$scratch/b" >"$scratch/out" 2>&1
}

# Suites that pass, fail, and are left for want of time; each program notes that it runs.
resumed() {
    local good='echo "100%: Checks: 2, Failures: 0, Errors: 0"'
    mkdir -p "$scratch/b/tests/fake" && : >"$scratch/ran"
    printf '#!/bin/sh\nshift 2; for i in 1 2; do "$@"; done | tail -n 1\n' >"$scratch/mpirun"
    printf '#!/bin/sh\n' >"$scratch/b/gpt2"
    chmod +x "$scratch/mpirun" "$scratch/b/gpt2"
    suite cuda_kernels "$good"
    suite aa "$good"
    suite zz "$good; exit 3"
    suite some_ranks "$good"
    again LIMIT=0 ONLY='cuda_kernels aa'
    ran 75 $? "" '^left, run it again: aa$'
    again ONLY='cuda_kernels aa'
    ran 0 $? "cuda_kernels aa" '^passed on fakes, which tells nothing of GPUs: 2$'
    again ONLY='cuda_kernels aa zz'
    ran 1 $? "zz" '^FAILED: zz$'
    suite zz "$good"
    again LIMIT=0 ONLY='cuda_kernels aa zz'
    ran 75 $? "" '^  aa (earlier)$'
    again ONLY='cuda_kernels aa zz some_ranks_2'
    ran 0 $? "some_ranks some_ranks zz" '^  some_ranks_2$'
    suite aa ":"
    again ONLY='cuda_kernels aa'
    ran 1 $? "aa" '^FAILED: aa$'
    suite aa "sleep 2; $good"
    suite zz "sleep 60; $good"
    again LIMIT=4 ONLY='aa zz'
    ran 75 $? "aa zz" '^left, run it again: zz (stopped after [12] s)$'
    again LIMIT=4 ONLY='aa zz'
    ran 1 $? "zz" '^FAILED: zz$'
    suite zz "$good"
    again RESULTS="$scratch/kept" ONLY=zz
    ran 0 $? "zz" '^  zz$'
    again RESULTS="$scratch/kept" ONLY=zz
    ran 0 $? "" '^  zz (earlier)$'
    again ONLY='nothing'
    ran 1 $? "" '^FAILED: nothing: there is no such suite here$'
    suite aa "$good; true"
    again ONLY='aa cuda_kernel'
    ran 1 $? "aa" '^FAILED: cuda_kernel: there is no such suite here$'
}

measured() {
    local only="kernels copies units memory gpt2" table=$scratch/table row
    ONLY="copies kernel" tests/gpu/bench.sh --fakes "$build" >"$table" 2>"$scratch/err"
    [ $? = 2 ] && [ ! -s "$table" ] && grep -q "^ONLY names 'kernel'. Use kernels, " "$scratch/err"
    verdict $? "bench.sh with a name that is none: $(cat "$table" "$scratch/err")"
    [ -e "$build/libzero_cuda.so" ] || only="kernels copies units"
    ONLY=$only tests/gpu/bench.sh --fakes "$build" --quick >"$table" 2>"$scratch/err"
    verdict $? "bench.sh failed: $(cat "$table" "$scratch/err")"
    grep -q '^## fake GPU 0, 20[0-9-]*$' "$table" && grep -q '^libzero at [^,]*, ' "$table" &&
        [ "$(grep -cE '^\| [a-z0-9 ]+ \| [0-9.e+-]+ GB/s \| [0-9.e+-]+ GB/s \| [0-9]+ % \|$' \
            "$table")" = 15 ] &&
        [ "$(grep -cE '^\| stage[03](, cpu)? \| -?[0-9.]+ us \| -?[0-9.]+ us \|$' "$table")" = 4 ]
    verdict $? "bench.sh has another table: $(cat "$table")"
    # Rates have four digits and shares are whole: off by 0.55, and by a thousandth of the ratio.
    awk -F'|' '/ GB\/s / { ratio = 100 * $4 / $3; off = $5 - ratio
                          bad += off * off > (0.56 + 0.00101 * ratio) ^ 2 }
        END { exit bad > 0 }' "$table"
    verdict $? "bench.sh has wrong shares: $(cat "$table")"
    [[ $only != *memory* ]] ||
        [ "$(grep -cE '^\| [013] \| (none|cpu) \| d4 \| 3.* MiB \| .* s \|  \|$' "$table")" = 6 ]
    verdict $? "bench.sh has other rows of memory: $(cat "$table")"
    "$build/gpt2" --help | grep -q '^ *--device .*cuda' || return
    row='ktok/s \| [0-9.]+ Tflop/s, [0-9]+ % of [0-9.]+ \| [0-9]+ % \|  \|$'
    [ "$(grep -cE "^\| --model d4 .* [0-9.]+ $row" \
        "$table")" = 6 ]
    verdict $? "bench.sh has other rows of gpt2: $(cat "$table")"
    local name
    for name in trainer benched; do
        tests/gpu/check.sh --suite $name fakes "$build" >"$scratch/out" 2>&1
        verdict $? "$name on fakes: $(cat "$scratch/out")"
    done
}

# A gpt2 that computes on GPUs, and has no disk: what is asked of it, and its rows.
trained() {
    local b=$scratch/trained
    mkdir -p "$b/tests/fake"
    ln -s "$build"/tests/{plugin_test,gpu_bench_on_fakes} "$b/tests"
    ln -s "$build/tests/fake/gpt2_cuda.so" "$b/tests/fake"
    cat >"$b/gpt2" <<'GPT2'
#!/bin/sh
case "$*" in
*--help) echo "  --device cpu|cuda  what it computes on" ;;
*"--offload nvme"*) echo "There is no disk. Buy one." && exit 1 ;;
*--quiet*"--stage 1"*) echo "digest master=2" ;;
*--quiet*) echo "digest master=1" ;;
*"--device cuda "*)
    log=${*##*--log } && log=${log%% *}
    echo "step,loss,loss_bits,norm,norm_bits,lr,eval_loss,tokens_per_s,step_ms" >"$log"
    rates="5000 101000.5 100000.1 99000"
    [ "$CUDA_DEVICE_MAX_CONNECTIONS" != 8 ] || rates="1 1e6"
    for rate in $rates; do
        echo "1,5.4,40af5014,2.4,401c8bb7,0.001,,$rate,1.7" >>"$log"
    done
    case "$*" in *--recompute*)
        trap 'echo it ends; exit 143' TERM
        for i in 1 2 3 4 5 6 7 8 9; do sleep 1; done
        ;;
    esac
    echo "  compute: the GPU          300.0 Tflop/s  800.0 Tflop/s   38 %       0.25 s  it"
    ;;
esac
GPT2
    chmod +x "$b/gpt2"
    ROW_SECONDS=2 ONLY=gpt2 tests/gpu/bench.sh --fakes "$b" >"$scratch/out" 2>&1
    [ "$(grep -c '^| --model gpt2 .* | 100 ktok/s | 74.4 Tflop/s, 9 % of 800 | 38 % |  |$' \
        "$scratch/out")" = 9 ] &&
        [ "$(grep -c '^| CUDA.*=8 --model gpt2-xl .* | 1000 ktok/s | ' "$scratch/out")" = 1 ] &&
        [ "$(grep -c ' --model gpt2-xl .* | 100 ktok/s | 934.8 Tflop/s |  | stopped after 2 s |$' \
            "$scratch/out")" = 1 ] &&
        [ "$(grep -c ' --model gpt2 .* | 100 ktok/s | 74.4 Tflop/s |  | stopped after 2 s |$' \
            "$scratch/out")" = 1 ] &&
        [ "$(grep -c '| | | | There is no disk. Buy one. |$' "$scratch/out")" = 7 ]
    verdict $? "rows of gpt2: $(cat "$scratch/out")"
    ONLY=gpt2 tests/gpu/bench.sh --fakes "$b" >"$scratch/out" 2>&1
    [ "$(grep -c '^| .*ktok/s' "$scratch/out")/$(grep -c 'Buy one' "$scratch/out")" = 0/7 ]
    verdict $? "rows of gpt2 that have been measured: $(cat "$scratch/out")"
    RESULTS=$scratch/rows ROWS=1,3 ONLY=gpt2 tests/gpu/bench.sh --fakes "$b" >"$scratch/out" 2>&1
    [ "$(grep -c 'ktok/s' "$scratch/out")/$(grep -c 'ktok/s' "$scratch/rows/results.md")" = 3/3 ]
    verdict $? "three rows of gpt2: $(cat "$scratch/out")"
    ROWS=90,91 ONLY=gpt2 tests/gpu/bench.sh --fakes "$b" >"$scratch/out" 2>&1
    [ $? = 1 ] && grep -q 'There is no row 90,91 in the table\.' "$scratch/out"
    verdict $? "rows that there are not: $(cat "$scratch/out")"
    MPIRUN='' ONLY=gpt2 tests/gpu/check.sh --fakes "$b" >"$scratch/out" 2>&1
    [ $? = 1 ] && grep -q '^80%: Checks: 5, Failures: 1, ' "$scratch/out" &&
        grep -q 'gpt2, 1 3 nvme: There is no disk. Buy one., not digest master=1' "$scratch/out"
    verdict $? "digests of gpt2: $(cat "$scratch/out")"
}

without
resumed
measured
trained
closing
