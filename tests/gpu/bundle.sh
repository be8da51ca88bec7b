#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a machine with CUDA's toolkit and a compiler, but no packages and no network, lacks for
# make check-gpu: tests/gpu/bundle.sh FOLDER | --prove FOLDER
# Copies from this Debian: static Check and liburing, xxHash's header, make, and an Open MPI
# that runs from its own folder, for ranks of one node. There: make check-gpu BUNDLE=FOLDER.
# --prove builds and tests the tree with that folder where those packages are hidden and the
# network is gone; it needs root, and takes minutes.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1

stop() {
    printf 'bundle.sh: %s\n' "$@" >&2
    exit 1
}

packages=(openmpi-bin openmpi-common libopenmpi-dev libopenmpi3 libpmix2 libpmix-dev libhwloc15
    libhwloc-dev libhwloc-plugins liburing2 liburing-dev libxxhash-dev libxxhash0 check
    libsubunit-dev libmunge2 libevent-2.1-7 libevent-core-2.1-7 libevent-pthreads-2.1-7
    libevent-dev make)

# Parts of Open MPI that need what the bundle has not: other networks' libraries, files, traces.
unwanted='oshmem|libuc[pst]|ofi|fabric|verbs|psm|ompio|monitoring|libnl'

# ------------------------------------------------------------------- making one
# The libraries that files need, but for those that every machine has, of its own version.
needed() { # files
    ldd "$@" 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
        grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv|libz|libudev|ld-linux[^/]*)\.so'
}

copy_mpi() { # folder
    local from=/usr/lib/x86_64-linux-gnu/openmpi to=$1/openmpi component libraries
    [ -f "$from/include/mpi.h" ] || stop "Open MPI is not here: apt-get install libopenmpi-dev."
    mkdir -p "$to/bin" "$to/lib/openmpi3" "$to/share/openmpi" "$to/include"
    cp -L /usr/bin/orterun /usr/bin/orted "$to/bin" || exit 1
    cp "$from"/include/mpi.h "$from"/include/mpi_portable_platform.h "$to/include" || exit 1
    for component in "$from"/lib/openmpi3/mca_*.so; do
        ldd "$component" | grep -qE "$unwanted" || cp "$component" "$to/lib/openmpi3" || exit 1
    done
    mapfile -t libraries < <(needed "$to"/bin/* "$to"/lib/openmpi3/* "$from/lib/libmpi.so")
    cp -L "${libraries[@]}" "$to/lib" || exit 1
    cp -L "$from/lib/libmpi.so" "$to/lib/libmpi.so.40" && ln -s libmpi.so.40 "$to/lib/libmpi.so"
    cp /usr/share/openmpi/*.txt "$to/share/openmpi"
    strip --strip-unneeded "$to"/lib/*.so.* "$to"/lib/openmpi3/*.so
    cat >"$1/bin/mpirun" <<'RUN'
#!/bin/sh
# Starts ranks on this machine with the Open MPI of this folder.
here=$(cd "$(dirname "$0")/.." && pwd)/openmpi
export OPAL_PREFIX="$here" OPAL_LIBDIR="$here/lib" OPAL_PKGLIBDIR="$here/lib/openmpi3"
export OPAL_PKGDATADIR="$here/share/openmpi" OPAL_DATADIR="$here/share"
export PMIX_INSTALL_PREFIX="$here" LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export OMPI_MCA_plm=isolated OMPI_MCA_mca_base_component_show_load_errors=0
export PMIX_MCA_pcompress_base_silence_warning=1
exec "$here/bin/orterun" "$@"
RUN
    chmod +x "$1/bin/mpirun"
}

copy_others() { # folder
    local lib=/usr/lib/x86_64-linux-gnu
    cp -L $lib/libcheck_pic.a "$1/lib/libcheck.a" || stop "apt-get install check."
    cp -L $lib/libsubunit.a $lib/liburing.a "$1/lib" ||
        stop "apt-get install libsubunit-dev liburing-dev."
    cp /usr/include/{check,check_stdint,liburing}.h "$1/include" || exit 1
    cp -r /usr/include/liburing "$1/include" || exit 1
    cp -L /usr/include/xxhash.h "$1/include" || stop "apt-get install libxxhash-dev."
    cp -L "$(command -v make)" "$1/bin/make" || exit 1
}

# The newest C library that anything here asks for.
glibc() { # folder
    find "$1" -type f \( -name '*.so*' -o -path '*/bin/*' \) -exec objdump -T {} + 2>/dev/null |
        grep -o 'GLIBC_2\.[0-9]*' | sort -uV | tail -n 1
}

make_bundle() { # folder
    [ "$(uname -m)" = x86_64 ] || stop "Only for x86-64 so far."
    [ ! -e "$1" ] || [ -f "$1/commit" ] || stop "$1 is there, and no bundle: it stays." \
        "Give another folder."
    rm -rf "$1" && mkdir -p "$1/bin" "$1/lib" "$1/include" || exit 1
    copy_mpi "$1"
    copy_others "$1"
    git describe --always --dirty >"$1/commit" 2>/dev/null || echo unknown >"$1/commit"
    echo "$1: $(du -sm "$1" | cut -f1) MiB, for x86-64 with $(glibc "$1") or later; sources" \
        "$(git ls-files -z | du -cm --files0-from=- 2>/dev/null | tail -n 1 | cut -f1) MiB"
}

# -------------------------------------------------------------------- proving it
# In a namespace of its own: without the packages' files, and without a network.
prove() { # folder
    local bundle build=build-proof layers name
    bundle=$(realpath "$1") || exit 1
    [ "$(id -u)" = 0 ] || stop "--prove mounts, for which it needs root."
    [ -x "$bundle/bin/mpirun" ] || stop "There is no bundle in $1: make gpu-bundle."
    if [ -z "${PROVING-}" ]; then
        PROVING=1 exec unshare --mount --net --propagation private "$0" --prove "$bundle"
    fi
    ip link set lo up 2>/dev/null || python3 - <<'UP'
import fcntl, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 0x41))  # SIOCSIFFLAGS: up, running
UP
    layers=$(mktemp -d)
    mount -t tmpfs tmpfs "$layers" && mkdir "$layers/up" "$layers/work"
    mount -t overlay overlay -o "lowerdir=/usr,upperdir=$layers/up,workdir=$layers/work" /usr ||
        stop "The packages' files cannot be hidden: no overlay can be mounted here."
    for name in "${packages[@]}"; do
        dpkg -L "$name" 2>/dev/null | while read -r name; do
            [ ! -d "$name" ] && rm -f "/usr${name#/usr}"
        done
    done
    rm -f /usr/bin/mpi* /usr/lib/x86_64-linux-gnu/{libmpi,libopen-,libpmix,liburing,libcheck}*
    ldconfig -C "$layers/cache" 2>/dev/null
    ! command -v mpicc mpirun make || stop "They are not hidden."
    # shellcheck disable=SC2086 # words
    "$bundle/bin/make" BUNDLE="$bundle" BUILD=$build report >"$layers/report"
    ! grep -E '✗ .*(MPI|liburing|xxHash|Check)' "$layers/report" ||
        stop "A package is not taken from the bundle."
    "$bundle/bin/make" -j"$(nproc)" BUNDLE="$bundle" BUILD=$build gpu-programs ||
        stop "It does not build."
    "$bundle/bin/make" BUNDLE="$bundle" BUILD=$build FAKE_GPU=1 check-gpu
}

case ${1-} in
--prove) prove "${2:?a folder}" ;;
'') stop "Give a folder: tests/gpu/bundle.sh FOLDER." ;;
*) make_bundle "$1" ;;
esac
