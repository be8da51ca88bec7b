#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the build did not find: tests/install.sh [NAME...], by make deps.
# --report NAME... prints what is there and, for each NAME, what is not. It uses
# the distribution's packages alone, changes nothing unless it is root, and
# touches no network when nothing is missing. Without what only some tests use,
# make check goes on. --self-test runs it with package managers that only speak.
set -u
optional=" cxx pkgconfig strace cross clang valgrind "

# name | what it is | what it is for | Debian | Fedora, RHEL | Spack
packages() {
    cat <<'TABLE'
cc|C compiler|builds everything|gcc libc6-dev|gcc glibc-devel diffutils findutils|gcc
mpi|Open MPI|several ranks; without it, one|libopenmpi-dev openmpi-bin|openmpi-devel|openmpi
mpirun|mpirun|starts several ranks|openmpi-bin|openmpi|openmpi
uring|liburing|file I/O by io_uring; without it, by threads|liburing-dev|liburing-devel|liburing
xxhash|xxHash|checksums of what is read from files|libxxhash-dev|xxhash-devel|xxhash
cuda|CUDA toolkit|kernels for GPUs, by CUDA 11.8 or later|nvidia-cuda-toolkit|cuda-toolkit|cuda
cublas|cuBLAS|gpt2 on GPUs|nvidia-cuda-toolkit|libcublas-devel|cuda
nccl|NCCL|units from GPU to GPU; without it, through host memory|libnccl-dev|libnccl-devel|nccl
cxx|C++ compiler|tests the headers in C++|g++|gcc-c++|gcc
pkgconfig|pkg-config|tests zero.pc|pkg-config|pkgconf-pkg-config|pkgconf
strace|strace|tests which files are touched|strace|strace|strace
check|Check|runs the tests|check|check-devel pkgconf libasan libubsan libtsan|check
cross|ARM compiler|tests NEON|gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user|qemu-user|qemu
clang|clang|fuzzes what reads files and options|clang libclang-rt-dev|clang compiler-rt|llvm
valgrind|valgrind|tests memory without a sanitizer|valgrind|valgrind-devel valgrind|valgrind
TABLE
}

# Prints column $1 (1: name) of the packages named by the other arguments.
column() {
    packages | awk -F'|' -v column="$1" -v names=" ${*:2} " '
        index(names, " " $1 " ") { print $column }'
}

words() {
    tr ' ' '\n' | awk '!seen[$0]++' | tr '\n' ' ' | sed 's/^ *//; s/ *$//'
}

report() {
    packages | awk -F'|' -v names=" $* " '
        index(names, " " $1 " ") {
            lacks = lacks "  ✗ " $2 ": " $3 "\n      apt: " $4 ", dnf: " $5 ", spack: " $6 "\n"
            next
        }
        /^(cublas|nccl)/ && index(names, " cuda ") { next } # not looked for then
        $1 !~ /^(mpirun|cross|clang|valgrind)$/ { has = has "  ✓ " $2 }
        END { if (has) print has; printf "%s", lacks }'
}

manager() { # the distribution's, if we know it
    local name
    for name in apt-get dnf; do
        command -v $name >/dev/null && echo $name && return
    done
}

column_of() { # manager
    case $1 in
    apt-get) echo 4 ;;
    dnf) echo 5 ;;
    esac
}

apt_get_install() {
    export DEBIAN_FRONTEND=noninteractive
    # An index that cannot be fetched matters only when a package is then not found.
    apt-get -q -o DPkg::Lock::Timeout=120 update
    apt-get -q -y -o DPkg::Lock::Timeout=120 install --no-install-recommends "$@"
}

dnf_install() {
    dnf -q -y --setopt=install_weak_deps=False install "$@"
}

install_all() { # manager, package...
    local log
    log=$(mktemp) || return 1
    echo "Installing with $1: ${*:2}"
    if ! "${1/-/_}_install" "${@:2}" >"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
        echo "$1 could not install: ${*:2}." >&2
        echo "The log is $log: mend what it names and run make deps again." >&2
        [ "$1" != dnf ] || echo "RHEL and its kin have some in CRB and in EPEL, which dnf" \
            "config-manager --set-enabled crb and dnf install epel-release bring." >&2
        return 1
    fi
    rm -f "$log"
}

# What has to be typed, by somebody who may.
advise() { # manager, name...
    local line
    line=$(column "$(column_of "$1")" "${@:2}" | words)
    case $1 in
    apt-get) echo "Install it with: sudo apt-get install --no-install-recommends $line" ;;
    dnf) echo "Install it with: sudo dnf install $line" ;;
    esac
    [ "$1" = apt-get ] || echo "Without root: spack install $(column 6 "${@:2}" | words)"
}

# Installs the packages of some names, or says how.
provide() { # manager, name...
    local line
    [ $# -gt 1 ] || return 0
    echo "Not found on this machine:"
    packages | awk -F'|' -v names=" ${*:2} " 'index(names, " " $1 " ") { print "  " $2 ": " $3 }'
    if [ -n "$1" ] && [ "$(id -u)" = 0 ]; then
        line=$(column "$(column_of "$1")" "${@:2}" | words)
        # shellcheck disable=SC2086 # one word per package
        install_all "$1" $line && echo "Installed."
        return
    fi
    advise "$@" >&2
    return 1
}

main() {
    local name needed=() extra=() found
    for name in "$@"; do
        case $optional in
        *" $name "*) extra+=("$name") ;;
        *) needed+=("$name") ;;
        esac
    done
    found=$(manager)
    if [ $# = 0 ]; then
        echo "Nothing to install: compiler, packages and tests' tools are here."
    elif ! provide "$found" "${needed[@]}"; then
        echo "To build without a package, say so:" \
            "make MPI=0, URING=0, XXHASH=0, CHECK=0." >&2
        return 1
    fi
    provide "$found" "${extra[@]}" || echo "Without it these tests are skipped."
}

# machine's manager | user | its status | names | status | what is said or run
cases() {
    cat <<'LIST'
apt-get|0|0||0|Nothing to install
apt-get|0|0|mpi mpirun|0|run: apt-get .*install --no-install-recommends libopenmpi-dev openmpi-bin$
apt-get|0|1|uring|1|apt-get could not install: liburing-dev\.
apt-get|0|1|uring|1|make MPI=0, URING=0
apt-get|7|0|uring check|1|sudo apt-get install --no-install-recommends liburing-dev check$
apt-get|7|0|cxx|0|sudo apt-get install --no-install-recommends g++$
apt-get|7|0|cxx|0|Without it these tests are skipped
apt-get|0|1|cxx pkgconfig|0|run: apt-get .*install --no-install-recommends g++ pkg-config$
apt-get|7|0|mpi cxx|1|sudo apt-get install --no-install-recommends libopenmpi-dev openmpi-bin$
dnf|0|0|cc mpi uring|0|run: dnf .*install gcc .* findutils openmpi-devel liburing-devel$
dnf|0|0|xxhash|0|run: dnf .*install xxhash-devel$
dnf|0|1|check|1|dnf could not install: check-devel pkgconf libasan .* libtsan\.
dnf|0|1|check|1|in CRB and in EPEL
dnf|7|0|mpi mpirun check|1|sudo dnf install openmpi-devel openmpi check-devel .* libtsan$
dnf|7|0|mpi mpirun check|1|spack install openmpi check$
none|0|0|mpi uring|1|spack install openmpi liburing$
none|7|0|pkgconfig|0|spack install pkgconf$
LIST
}

# A machine with nothing but these programs, a package manager among them.
machine() { # folder, manager, user, status of the manager
    local tool
    rm -rf "$1" && mkdir "$1"
    for tool in bash cat awk sed tr tail mktemp rm; do
        ln -s "$(command -v $tool)" "$1/$tool"
    done
    printf '#!/bin/sh\necho %s\n' "$3" >"$1/id"
    # shellcheck disable=SC2016 # the program's words
    printf '#!/bin/sh\necho "run: %s $*" >&3\nexit %s\n' "$2" "$4" >"$1/$2"
    chmod +x "$1/id" "$1/$2"
}

self_test() {
    local who user fails names expected pattern status checks=0 failures=0
    scratch=$(mktemp -d) || exit 1
    trap 'rm -rf "$scratch"' EXIT
    while IFS='|' read -r who user fails names expected pattern; do
        machine "$scratch/bin" "$who" "$user" "$fails"
        # shellcheck disable=SC2086 # one word per name
        env PATH="$scratch/bin" TMPDIR="$scratch" "$0" $names >"$scratch/out" 2>&1 3>&1
        status=$?
        checks=$((checks + 1))
        [ "$status" = "$expected" ] && grep -q -e "$pattern" "$scratch/out" && continue
        failures=$((failures + 1))
        echo "install.sh $names, with $who, as user $user: status $status, and said"
        cat "$scratch/out"
    done < <(cases)
    while IFS='|' read -r names _; do
        checks=$((checks + 1))
        "$0" --report "$names" | grep -A1 ✗ | grep -q 'apt: .*, dnf: .*, spack: [a-z]' && continue
        failures=$((failures + 1))
        echo "install.sh --report $names does not name its packages"
    done < <(packages)
    checks=$((checks + 1))
    if "$0" --report cuda | grep -qE 'cuBLAS|NCCL'; then
        failures=$((failures + 1))
        echo "install.sh --report cuda tells of what is not looked for without the toolkit"
    fi
    echo "$(((checks - failures) * 100 / checks))%: Checks: $checks, Failures: $failures, Errors: 0"
    [ "$failures" = 0 ]
}

case ${1-} in
--report) report "${@:2}" ;;
--self-test) self_test ;;
*) main "$@" ;;
esac
