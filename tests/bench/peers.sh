#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# libzero beside fio, PyTorch and DeepSpeed:
# tests/bench/peers.sh BUILD [adam|io|products|train|update]...
# Run by make bench-peers and by nothing else. What is missing is installed: Python
# packages in $PEERS (build-peers), fio and libaio-dev by apt-get as root. What is
# measured and what came out: tests/bench/README.md.
set -eu
cd "$(dirname "$0")/../.."
build=${1:?the build folder}
shift
[ $# -gt 0 ] || set -- adam io products train update
. tests/bench/aims.sh
peers=${PEERS:-$PWD/build-peers}
python=$peers/bin/python

install_python() {
    [ -e "$peers/complete" ] && return
    echo "Installing torch, numpy, deepspeed and ninja in $peers: 3 GB are downloaded, 5.4 GB"
    echo "written; most are the GPU libraries that torch is linked with. Ctrl-C ends it."
    mkdir -p "$peers/tmp"
    python3 -m venv "$peers"
    # pip unpacks in TMPDIR, which may be small memory.
    TMPDIR=$peers/tmp "$python" -m pip -q install torch numpy ninja setuptools wheel
    TMPDIR=$peers/tmp DS_BUILD_OPS=0 DS_ACCELERATOR=cpu DS_SKIP_CUDA_CHECK=1 \
        "$python" -m pip -q install --no-build-isolation deepspeed
    rm -rf "$peers/tmp"
    touch "$peers/complete"
}

# fio, and what DeepSpeed compiles its file operations with.
install_packages() {
    command -v fio >/dev/null && [ -e /usr/include/libaio.h ] && return
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "There is no fio, or no libaio.h. Install them: apt-get install fio libaio-dev" >&2
        exit 1
    fi
    echo "Installing fio and libaio-dev with apt-get: a few MB."
    apt-get install -y -qq --no-install-recommends fio libaio-dev >/dev/null
}

# What DeepSpeed compiles when it is first used takes minutes and stays in $PEERS.
export TORCH_EXTENSIONS_DIR=$peers/ext DS_ACCELERATOR=cpu DS_SKIP_CUDA_CHECK=1
export PATH=$peers/bin:$PATH

adam() {
    local objects=("$build"/obj/kernels/select.o "$build"/obj/kernels/cpu/*.o
        "$build/obj/examples/common/workers.o" "$build/obj/src/error.o")
    ${CC:-cc} -O3 -std=gnu11 -D_GNU_SOURCE -fPIC -shared -fvisibility=hidden -pthread -I. \
        tests/bench/kernels_shared.c "${objects[@]}" -lm -o "$peers/kernels.so"
    local threads
    for threads in 1 $(($(nproc) > 1 ? 2 : 1)); do
        OMP_NUM_THREADS=$threads "$python" tests/bench/adam.py "$peers/kernels.so"
    done
}

products() {
    local objects=("$build"/obj/examples/gpt2/{layers,linear,numeric,rows,matmul}*.o
        "$build"/obj/examples/common/workers.o)
    ${CC:-cc} -O3 -std=gnu11 -D_GNU_SOURCE -fPIC -shared -fvisibility=hidden -pthread -I. \
        tests/bench/products_shared.c "${objects[@]}" -lm -o "$peers/products.so"
    "$python" tests/bench/products.py "$peers/products.so"
}

compare() { # what...
    local what
    for what in "$@"; do
        compare_one "$what"
    done
}

compare_one() { # what
    case $1 in
    # Each on its own: within a list joined by && a step that fails would not end an installation.
    adam)
        install_python
        adam
        ;;
    io)
        install_packages
        tests/bench/io.sh "$build"
        ;;
    products)
        install_python
        products
        ;;
    train)
        install_packages
        install_python
        DTYPE=bf16 tests/bench/train.sh "$build" "$python" d6 d12
        DTYPE=fp32 MODES="ddp fsdp2 zero0 zero1 zero2 zero3" \
            tests/bench/train.sh "$build" "$python" d6 d12
        ;;
    update)
        install_packages
        install_python
        MODES="zero3update zero3updatepipe" tests/bench/train.sh "$build" "$python" 12x768 20x2048
        ;;
    *)
        echo "There is no comparison '$1'. Give adam, io, products, train or update." >&2
        exit 2
        ;;
    esac
}

with_aims compare "$@"
