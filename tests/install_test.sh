#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What make install places, and that programs elsewhere build and run with it:
#     tests/install_test.sh BUILD
# installs BUILD into folders of its own, compiles examples/quickstart.c and a
# C++17 program by pkg-config against the shared and the static library, demands
# the digests of the tree's own programs, and takes everything away again.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
build=$(realpath "${1:?the build folder}") || exit 1
unset MAKEFLAGS MFLAGS MAKEOVERRIDES PREFIX LIBDIR INCLUDEDIR DESTDIR LD_LIBRARY_PATH
. tests/support/verdicts.sh
export TMPDIR=$scratch # where programs put their files
unset SLURM_TMPDIR
prefix=$scratch/prefix
version=$(sed -n 's/^#define ZERO_VERSION "\(.*\)"/\1/p' include/zero.h)
soname=libzero.so.${version%%.*}
[ "$soname" != libzero.so.0 ] || soname=libzero.so.${version%.*} # until 1.0 each minor is another

try() { # what, command...: it must succeed
    timeout 100 "${@:2}" >"$scratch/out" 2>&1 </dev/null
    verdict $? "$1 failed: $(head -n 3 "$scratch/out")"
}

refused() { # what, a part of the sentence, command...
    if timeout 100 "${@:3}" >"$scratch/out" 2>&1 </dev/null; then
        verdict 1 "$1 was not refused"
    else
        grep -q -e "$2" "$scratch/out"
        verdict $? "$1 was refused otherwise: $(head -n 3 "$scratch/out")"
    fi
}

same() { # what, one, other
    [ "$2" = "$3" ]
    verdict $? "$1: $2, expected $3"
}

install=("${MAKE:-make}" -C "$PWD" --no-print-directory "BUILD=$1" install)
uninstall=("${install[@]/%install/uninstall}")

listing() { # folder: types, modes, names and the targets of links
    (cd "$1" && find . -printf '%y %m %P %l\n' | sed 's/ $//' | sort -k 3)
}

# A program must give the digest of its kind's first run.
digest_of() { # kind, what, command...
    try "$2" "${@:3}"
    grep '^digest' "$scratch/out" >"$scratch/digest"
    [ -s "$scratch/$1" ] || cp "$scratch/digest" "$scratch/$1"
    same "$2" "$(cat "$scratch/digest")" "$(cat "$scratch/$1")"
}

cat >"$scratch/toy.cpp" <<'CODE'
// Two tensors walk towards 0 and 1/2.
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#ifdef OWN_MPI
#include <zero_mpi.h>
#else
#include <zero.h>
#endif

static struct zero *z;

static void ok(int status)
{
    if (status == ZERO_OK)
        return;
    std::fprintf(stderr, "%s: %s\n", zero_status_name(status), zero_last_error(z));
    std::_Exit(1);
}

int main(int argc, char **argv)
{
    (void)argc, (void)argv;
    struct zero_config config = {};
    config.size = sizeof(config);
    config.stage = 3;
    config.offload = ZERO_NVME;
#ifdef OWN_MPI
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    if (zero_comm_mpi(MPI_COMM_WORLD, &config.comm, nullptr, 0))
        return 2;
#endif
    float one = 1;
    struct zero_param params[2] = {};
    for (int i = 0; i < 2; i++) {
        params[i].name = i ? "b" : "a";
        params[i].unit = i;
        params[i].ndim = 1;
        params[i].shape[0] = 1000;
        params[i].fill = zero_fill_constant;
        params[i].fill_arg = &one;
    }
    ok(zero_create(&z, params, 2, &config));
    struct zero_adam adam = {0.05, 0.9, 0.95, 1e-8, 0, false};
    ok(zero_set_adam(z, 0, &adam));
    float last[2] = {};
    for (int step = 0; step < 30; step++) {
        for (int i = 0; i < 2; i++) {
            ok(zero_acquire(z, i));
            const float *p = static_cast<const float *>(zero_param_data(z, i));
            float *g = static_cast<float *>(zero_grad_data(z, i));
            for (int k = 0; k < 1000; k++)
                g[k] = p[k] - 0.5f * float(i);
            last[i] = p[999];
            ok(zero_release(z, i));
            ok(zero_reduce(z, i));
        }
        ok(zero_step(z, nullptr));
    }
    struct zero_digest d;
    ok(zero_digest(z, &d));
    if (zero_rank(z) == 0)
        std::printf("ranks %d\ndigest %016" PRIx64 "\n", zero_size(z), d.master);
    zero_destroy(z);
#ifdef OWN_MPI
    config.comm->ops->destroy(config.comm);
    MPI_Finalize();
#endif
    return std::fabs(last[0]) < 0.4f && std::fabs(last[1] - 0.5f) < 0.4f ? 0 : 3;
}
CODE
sed 's,"include/zero.h",<zero.h>,; s/\.stage = stage/&, .offload = ZERO_NVME/' \
    examples/quickstart.c >"$scratch/toy.c"

# ------------------------------------------------- what lies where, and goes
touch "$scratch/before"
stage="$scratch/to be made/a stage"
opt=(DESTDIR="$stage" PREFIX=/opt/z)
usr=(DESTDIR="$stage" PREFIX=/usr LIBDIR=/usr/lib64 INCLUDEDIR=/usr/include/z)
(umask 077 && "${install[@]}" "${opt[@]}") >"$scratch/out" 2>&1
verdict $? "make install failed: $(head -n 3 "$scratch/out")"
listing "$stage" >"$scratch/first"
same "something was built" \
    "$(find "$build" -newer "$scratch/before" \( -name '*.[oa]' -o -name '*.so*' \))" ""
same "other modes than 755 and 644" "$(grep -vE '^(d 755|f 755|f 644|l 777) ' "$scratch/first")" ""
for file in include/zero.h lib/libzero.a lib/libzero.so lib/$soname lib/pkgconfig/zero.pc \
    share/doc/libzero/README.md share/doc/libzero/LICENSE; do
    [ -s "$stage/opt/z/$file" ]
    verdict $? "$file is not installed"
done
with_mpi=$(nm -D "$build/libzero.so" | grep -c ' zero_comm_mpi$')
same "zero_mpi.h" "$(find "$stage" -name zero_mpi.h | wc -l)" "$with_mpi"
same "the tool" "$(find "$stage" -name zero -type f)" \
    "$([ ! -x "$build/zero" ] || echo "$stage/opt/z/bin/zero")"
same "the plugin for GPUs" "$(find "$stage" -name libzero_cuda.so -type f)" \
    "$([ ! -f "$build/libzero_cuda.so" ] || echo "$stage/opt/z/lib/libzero_cuda.so")"
grep -qF "$stage" "$stage/opt/z/lib/pkgconfig/zero.pc"
same "zero.pc names DESTDIR" $? 1

try "a second installation" "${install[@]}" "${opt[0]}" PREFIX=/opt//z/
same "a second installation" "$(listing "$stage")" "$(cat "$scratch/first")"
touch "$stage/opt/z/lib/other.so"
try "make uninstall" "${uninstall[@]}" "${opt[@]}"
same "left, with another's file" "$(find "$stage" -type f)" "$stage/opt/z/lib/other.so"
mkdir -p "$stage/opt/z/include"
rm "$stage/opt/z/lib/other.so"
try "installing into folders that are there" "${install[@]}" "${opt[@]}"
try "make uninstall" "${uninstall[@]}" "${opt[0]}" PREFIX=/opt/z/
same "folders that were there" "$(cd "$stage" && find . | sort | tr '\n' ' ')" \
    ". ./opt ./opt/z ./opt/z/include ./opt/z/lib "
rm -r "$stage/opt"
try "other folders" "${install[@]}" "${usr[@]}"
[ -f "$stage/usr/lib64/pkgconfig/zero.pc" ] && [ -f "$stage/usr/include/z/zero.h" ]
verdict $? "LIBDIR or INCLUDEDIR is not honoured"
try "make uninstall without LIBDIR" "${uninstall[@]}" "${usr[@]:0:2}"
same "left by make uninstall" "$(find "$stage" -mindepth 1)" ""
try "a LIBDIR outside PREFIX" "${install[@]}" "${usr[@]}" LIBDIR=/lib/z
listing "$stage" >"$scratch/first"
refused "make uninstall without it" "names files outside PREFIX, LIBDIR and INCLUDEDIR: " \
    "${uninstall[@]}" "${usr[@]}"
same "then" "$(listing "$stage")" "$(cat "$scratch/first")"
try "make uninstall with it" "${uninstall[@]}" "${usr[@]}" LIBDIR=/lib/z
same "left by it" "$(find "$stage" -mindepth 1)" ""

refused "MPI=yes" "MPI is 'yes'\. Give MPI=0 to build without it, MPI=1 with it" \
    "${install[@]}" MPI=yes
refused "a second make uninstall" "no libzero is installed" "${uninstall[@]}" "${usr[@]:0:2}"
refused "a prefix with a blank" "PREFIX is" "${install[@]}" PREFIX="$stage/z"
refused "a relative prefix" "not a path from the root" "${install[@]}" PREFIX=z
refused "a prefix with .." "Give the path itself" "${install[@]}" PREFIX="$scratch/z/../y"
refused "a folder without a build" "Run make first" \
    env "${usr[@]}" src/install.sh install "$scratch"
mkdir -p "$scratch/old/obj/src"
echo "Version: $version" >"$scratch/old/zero.pc"
echo "a.o: include/zero.h" >"$scratch/old/obj/src/a.d"
touch -d 2001-01-01 "$scratch/old/libzero.so.$version"
refused "a build older than its sources" "include/zero.h is newer" \
    env "${usr[@]}" src/install.sh install "$scratch/old"
[ "$(stat -f -c %T /sys)" != sysfs ] || # where nobody may write, root neither
    refused "a folder that cannot be made" "mkdir: .*\(Operation\|Permission\|Read-only\)" \
        "${install[@]}" PREFIX=/sys/zero
echo "cuda.o: src/device/cuda.c" >"$scratch/old/obj/src/cuda.d"
rm "$scratch/old/obj/src/a.d"
touch -d 2001-01-01 "$scratch/old/libzero_cuda.so"
refused "a plugin older than its sources" "src/device/cuda.c is newer than .*/libzero_cuda.so" \
    env "${usr[@]}" src/install.sh install "$scratch/old"
mkdir -p "$scratch/old/obj/kernels/cuda"
rm "$scratch/old/obj/src/cuda.d"
echo "adam.o: kernels/cuda/adam.cu" >"$scratch/old/obj/kernels/cuda/adam.d"
refused "kernels newer than their plugin" "kernels/cuda/adam.cu is newer than .*/libzero_cuda.so" \
    env "${usr[@]}" src/install.sh install "$scratch/old"
rm -r "$scratch/old/obj"
mkdir -p "$scratch/old/stamp"
echo "0.0.0-1" >"$scratch/old/stamp/SOURCES"
refused "a plugin of other sources" "libzero_cuda.so is of other sources than .*/libzero\.so" \
    env "${usr[@]}" src/install.sh install "$scratch/old"
mkdir -p "$prefix/bin" "$prefix/include"
echo "another's" >"$prefix/include/zero.h"
refused "another's file" "not from an earlier" "${install[@]}" PREFIX="$prefix"
same "another's file" "$(find "$prefix" -type f -exec cat {} +)" "another's"
rm -r "$prefix"

# ------------------------------------------------------- programs elsewhere
try "make install" "${install[@]}" PREFIX="$prefix"
same "the name programs ask for" \
    "$(readelf -d "$prefix/lib/libzero.so" | grep SONAME | grep -o 'libzero[^]]*')" "$soname"
nm -D --defined-only "$prefix/lib/libzero.so" | awk '{ print $3 }' | sort >"$scratch/exported"
cat "$prefix"/include/*.h | tr '\n' ' ' | grep -oE 'ZERO_API [^(;]*\(' |
    grep -oE 'zero_[a-z0-9_]+\($' | tr -d '(' | sort >"$scratch/declared"
same "declared, but not exported, or exported alone" \
    "$(comm -3 "$scratch/declared" "$scratch/exported")" ""
[ "$(wc -l <"$scratch/exported")" -gt 30 ]
verdict $? "few names are exported: $(cat "$scratch/exported")"

pc() {
    PKG_CONFIG_PATH=$prefix/lib/pkgconfig "${PKG_CONFIG:-pkg-config}" "$@" zero
}
if pc --exists; then
    read -ra cflags <<<"$(pc --cflags)"
    read -ra shared <<<"$(pc --libs)"
    read -ra static <<<"$(pc --static --libs | sed 's/-lzero/-l:libzero.a/')"
    same "its version" "$(pc --modversion)" "$version"
else
    command -v "${PKG_CONFIG:-pkg-config}" >/dev/null
    same "pkg-config finds no zero.pc, and is there" $? 1
    echo "skipped: the answers of pkg-config, for want of it"
    cflags=("-I$prefix/include") shared=("-L$prefix/lib" -lzero)
    read -ra static <<<"$(sed -n 's/^Libs.private: //p' "$prefix/lib/pkgconfig/zero.pc")"
    static=("-L$prefix/lib" -l:libzero.a "${static[@]}")
fi
strict=(-Wall -Wextra -Wpedantic -Werror -O2 "${cflags[@]}")
rpath=-Wl,-rpath,$prefix/lib
cd "$scratch" || exit 1
if [ "$with_mpi" = 1 ] && [ ${#launcher[@]} = 0 ]; then
    echo "skipped: installed programs on 2 ranks, for want of mpirun"
fi

on_two_ranks() { # kind, what, program
    [ "$with_mpi" = 1 ] && [ ${#launcher[@]} -gt 0 ] || return
    digest_of "$1" "$2, 2 ranks" "${launcher[@]}" -n 2 "$3" 3
    [ "$1" != cpp ] || grep -qx "ranks 2" out
    verdict $? "$2 on 2 ranks has others: $(grep ranks out)"
}

programs() { # kind, source, compiler...: with both libraries
    local kind=$1 source=$2 name=${3##*/}
    shift 2
    rm -f shared pathless static
    try "$name, shared" "$@" "${strict[@]}" "$source" "${shared[@]}" "$rpath" -lm -o shared
    try "$name, without rpath" "$@" "${strict[@]}" "$source" "${shared[@]}" -lm -o pathless
    try "$name, static" "$@" "${strict[@]}" "$source" "${static[@]}" -lm -o static
    readelf -d static | grep -q libzero
    same "$name, static: asks for the shared library" $? 1
    digest_of "$kind" "$name, shared" ./shared 3
    digest_of "$kind" "$name, by LD_LIBRARY_PATH" env LD_LIBRARY_PATH="$prefix/lib" ./pathless 3
    digest_of "$kind" "$name, static" ./static 3
    on_two_ranks "$kind" "$name, shared" ./shared
    on_two_ranks "$kind" "$name, static" ./static
}

"$build/quickstart" 0 | grep '^digest' >c
read -ra cc <<<"${CC:-cc}" # as "ccache gcc" is
programs c toy.c "${cc[@]}" -std=gnu11
cxx=
for compiler in g++ clang++; do
    echo 'int main() { return 0; }' >probe.cpp
    if "$compiler" probe.cpp -o probe 2>/dev/null; then
        cxx=$compiler
        programs cpp toy.cpp "$compiler" -std=c++17
    else
        echo "skipped: C++17 with the installed library by $compiler, for want of it"
    fi
done

# A program's plugin that uses the library: opened, closed and opened again.
cat >loader.c <<'CODE'
#include <dlfcn.h>
int main(int argc, char **argv)
{
    int status = 0;
    for (int i = 0; i < 2 && !status; i++) {
        void *plugin = dlopen("./plugin.so", RTLD_NOW | RTLD_LOCAL);
        int (*toy)(int, char **) = plugin ? (int (*)(int, char **))dlsym(plugin, "toy") : 0;
        status = !toy || toy(argc, argv) || dlclose(plugin);
    }
    return status;
}
CODE
try "what opens it" "${cc[@]}" loader.c -ldl -o loader
sed p c >plugin
for kind in shared static; do
    libraries=("${shared[@]}" "$rpath")
    [ $kind = shared ] || libraries=("${static[@]}")
    try "a plugin, $kind" "${cc[@]}" -shared -fPIC -Dmain=toy "${cflags[@]}" toy.c \
        "${libraries[@]}" -lm -o plugin.so
    digest_of plugin "a plugin that is opened twice, $kind" ./loader 3
    on_two_ranks plugin "a plugin that is opened twice, $kind" ./loader
done

# A program that brings its own communicator; MPI's C++ names are not needed.
if [ "$with_mpi" = 1 ]; then
    mpicc=${MPICC:-mpicc}
    echo '#include <zero_mpi.h>' >header.c
    try "zero_mpi.h in C" "$mpicc" -std=c11 "${strict[@]}" -c header.c -o header.o
    if [ -n "$cxx" ]; then
        try "zero_mpi.h in C++" "$mpicc" -std=c++17 -DOWN_MPI -DOMPI_SKIP_MPICXX \
            -DMPICH_SKIP_MPICXX "${strict[@]}" toy.cpp "${shared[@]}" "$rpath" -lstdc++ -o own
        digest_of cpp "a program's own communicator" ./own
        on_two_ranks cpp "a program's own communicator" ./own
    fi
fi

try "make uninstall" "${uninstall[@]}" PREFIX="$prefix"
[ ! -e "$prefix" ]
verdict $? "make uninstall leaves $(find "$prefix" 2>/dev/null | tr '\n' ' ')"

closing
