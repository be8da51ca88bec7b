#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Puts what is built in BUILD where programs look for it, and takes it away:
#     PREFIX=... DESTDIR=... LIBDIR=... INCLUDEDIR=... src/install.sh install|uninstall BUILD
# by make install and make uninstall. It compiles nothing, so that root, with
# another PATH, installs what the user has built. PREFIX/share/doc/libzero/installed
# lists what it placed and the folders it made: that, and no more, is removed.
set -u
export LC_ALL=C
umask 022
cd "$(dirname "$0")/.." || exit 1
build=$2
# Each slash once and none at the end, as the list below has them.
for folder in PREFIX LIBDIR INCLUDEDIR; do
    path=$(tr -s / <<<"${!folder}")
    [ "$path" = / ] || path=${path%/}
    printf -v "$folder" %s "$path"
done
doc=$PREFIX/share/doc/libzero
list=$doc/installed

stop() { # a sentence...
    printf '%s\n' "$@" >&2
    exit 1
}

# A path that pkg-config and a shell hand on as it is. DESTDIR may be any path.
check_path() { # variable
    case ${!1} in
    *[[:space:]]* | *[\"\'\`\\\$\#\&\;\|\<\>\(\)*?\[\]{}]*)
        stop "$1 is '${!1}', and pkg-config cannot pass on blanks and characters special to a" \
            "shell. Choose a path without them."
        ;;
    /*/../* | */..) stop "$1 is '${!1}', which leads back by '..'. Give the path itself." ;;
    /*) ;;
    *) stop "$1 is '${!1}', not a path from the root. Give one that begins with /." ;;
    esac
}

# What a file was made of has to be older than it.
check_newest() { # file, which objects it has: tests of find
    local source objects=(/dev/null)
    mapfile -t -O 1 objects < <(
        find "$build"/obj/{src,offload,kernels} -name '*.d' "${@:2}" 2>/dev/null)
    while read -r source; do
        grep -qsF "$source" "${objects[@]}" &&
            stop "$source is newer than $build/$1. Run make first."
    done < <(find include src offload kernels \( -name '*.[ch]' -o -name '*.cu' -o \
        -name '*.cuh' \) -newer "$build/$1")
}

check_build() {
    [ -f "$build/zero.pc" ] || stop "There is no build in $build. Run make first."
    version=$(sed -n 's/^Version: //p' "$build/zero.pc")
    library=libzero.so.$version
    [ -f "$build/$library" ] || stop "There is no $build/$library. Run make first."
    local plugin=(-path '*/obj/kernels/cuda/*' -o -name 'cuda*' -o -name 'nccl*')
    check_newest "$library" ! \( "${plugin[@]}" \)
    [ -f "$build/libzero_cuda.so" ] || return 0
    check_newest libzero_cuda.so \( "${plugin[@]}" \)
    grep -qaF "$(<"$build/stamp/SOURCES")" "$build/libzero_cuda.so" ||
        stop "$build/libzero_cuda.so is of other sources than $build/$library. Run make first," \
            "where the CUDA toolkit is, or remove it."
}

# mode or link|what|where: all that is installed.
files() {
    local soname=libzero.so.${version%%.*}
    [ "$soname" != libzero.so.0 ] || soname=libzero.so.${version%.*} # as in the Makefile
    echo "644|include/zero.h|$INCLUDEDIR/zero.h"
    if nm -D --defined-only "$build/$library" | grep -q ' zero_comm_mpi$'; then
        echo "644|include/zero_mpi.h|$INCLUDEDIR/zero_mpi.h"
    fi
    echo "644|$build/libzero.a|$LIBDIR/libzero.a"
    echo "755|$build/$library|$LIBDIR/$library"
    echo "link|$library|$LIBDIR/$soname"
    echo "link|$soname|$LIBDIR/libzero.so"
    [ ! -f "$build/libzero_cuda.so" ] ||
        echo "755|$build/libzero_cuda.so|$LIBDIR/libzero_cuda.so"
    echo "644|$scratch/zero.pc|$LIBDIR/pkgconfig/zero.pc"
    [ ! -x "$build/zero" ] || echo "755|$build/zero|$PREFIX/bin/zero"
    echo "644|README.md|$doc/README.md"
    echo "644|LICENSE|$doc/LICENSE"
    echo "644|$scratch/installed|$list"
}

# A file that somebody else has put there stays theirs.
check_free() {
    local path
    while IFS='|' read -r _ _ path; do
        [ -e "$DESTDIR$path" ] || [ -L "$DESTDIR$path" ] || continue
        grep -qxsF "$path" "$DESTDIR$list" ||
            stop "$DESTDIR$path exists and is not from an earlier make install, so it stays." \
                "Move it away, or choose another PREFIX."
    done < <(files)
}

# Makes a folder below DESTDIR, and notes what was not there.
folder() {
    [ ! -d "$DESTDIR$1" ] || return 0
    [ "$1" = / ] || folder "$(dirname "$1")" || return 1
    mkdir -m 755 "$DESTDIR$1" || return 1
    [ "$1" = / ] || echo "$1/" >>"$scratch/installed"
}

put() {
    local mode what where
    [ -z "$DESTDIR" ] || mkdir -p "$DESTDIR" || return 1
    while IFS='|' read -r mode what where; do
        folder "$(dirname "$where")" || return 1
    done < <(files)
    # The list is there before the first file: half an installation can be removed.
    { cat "$DESTDIR$list" 2>/dev/null; files | cut -d'|' -f3; } >>"$scratch/installed"
    sort -u -o "$scratch/installed" "$scratch/installed"
    while IFS='|' read -r mode what where; do
        case $mode in
        link) ln -sfn "$what" "$DESTDIR$where" || return 1 ;;
        *) install -m "$mode" "$what" "$DESTDIR$where" || return 1 ;;
        esac
    done < <(files | tac)
}

# The loader's cache: root's, of this system, and for the folders it looks into.
refresh() {
    [ -z "$DESTDIR" ] && [ "$(id -u)" = 0 ] && command -v ldconfig >/dev/null || return 0
    { printf '%s\n' /lib /usr/lib /lib64 /usr/lib64 && cat /etc/ld.so.conf /etc/ld.so.conf.d/*; } \
        2>/dev/null | grep -qxF "$LIBDIR" && ldconfig
}

do_install() {
    check_path LIBDIR
    check_path INCLUDEDIR
    check_build
    check_free
    # shellcheck disable=SC2016 # pkg-config expands it: the tree can be moved
    sed -e "s|@PREFIX@|$PREFIX|" -e "s|@LIBDIR@|${LIBDIR/#"$PREFIX/"/'${prefix}/'}|" \
        -e "s|@INCLUDEDIR@|${INCLUDEDIR/#"$PREFIX/"/'${prefix}/'}|" \
        "$build/zero.pc" >"$scratch/zero.pc"
    put || stop "libzero could not be installed in $DESTDIR$PREFIX: the line above says why." \
        "Where you may not write, use sudo make install, or a PREFIX of your own."
    refresh
    echo "Installed libzero $version in $DESTDIR$PREFIX. Programs are compiled with"
    echo "  cc train.c \$(PKG_CONFIG_PATH=$LIBDIR/pkgconfig pkg-config --cflags --libs zero)" \
        "-Wl,-rpath,$LIBDIR"
}

do_uninstall() {
    local path
    [ -f "$DESTDIR$list" ] || stop "$DESTDIR$list is not there: no libzero is installed in" \
        "$DESTDIR$PREFIX. Give the PREFIX and DESTDIR of the installation."
    cp "$DESTDIR$list" "$scratch/installed" || exit 1
    # The list is a file that others may have changed: nothing elsewhere goes.
    if [ ! -s "$scratch/installed" ] || grep -qE '/\.\.?(/|$)' "$scratch/installed"; then
        stop "$DESTDIR$list is not what make install wrote: nothing was removed. Remove it by hand."
    fi
    awk -v prefix="$PREFIX/" -v lib="$LIBDIR/" -v include="$INCLUDEDIR/" '
        index($0, prefix) != 1 && index($0, lib) != 1 && index($0, include) != 1 && !/\/$/ {
            strange = 1 }
        END { exit strange }' "$scratch/installed" ||
        stop "$DESTDIR$list names files outside PREFIX, LIBDIR and INCLUDEDIR: nothing was" \
            "removed. Give those of the installation, or remove it by hand."
    grep -v '/$' "$scratch/installed" | while read -r path; do
        rm -f "$DESTDIR$path" || exit 1
    done || stop "libzero could not be removed from $DESTDIR$PREFIX: the line above says why."
    # Deepest first; one that holds others' files stays.
    grep '/$' "$scratch/installed" | sort -r | while read -r path; do
        rmdir "$DESTDIR$path" 2>/dev/null
    done
    refresh
    echo "Removed libzero from $DESTDIR$PREFIX."
}

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
check_path PREFIX
"do_$1"
