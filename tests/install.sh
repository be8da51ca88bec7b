#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the build did not find: tests/install.sh [NAME...], by make deps.
# --report NAME... prints what is there and, for each NAME, what is not. It uses
# the distribution's packages alone, changes nothing unless it is root, and
# touches no network when nothing is missing.
set -u

# name | what it is | what it is for | Debian | Fedora, RHEL | Spack
packages() {
    cat <<'TABLE'
cc|C compiler|builds everything|gcc libc6-dev|gcc glibc-devel|gcc
mpi|Open MPI|several ranks; without it, one|libopenmpi-dev openmpi-bin|openmpi-devel|openmpi
mpirun|mpirun|starts several ranks|openmpi-bin|openmpi|openmpi
uring|liburing|file I/O by io_uring; without it, by threads|liburing-dev|liburing-devel|liburing
dnnl|oneDNN|fast matrix products in the examples|libdnnl-dev|onednn-devel|onednn
check|Check|runs the tests|check|check-devel pkgconf|check
cross|ARM compiler|tests NEON|gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user|qemu-user|qemu
TABLE
}

# Prints column $1 (1: name) of the packages named by the other arguments.
column() {
    packages | awk -F'|' -v column="$1" -v names=" ${*:2} " '
        index(names, " " $1 " ") { print $column }'
}

words() {
    tr '\n' ' ' | tr -s ' ' | sed 's/ $//'
}

report() {
    packages | awk -F'|' -v names=" $* " '
        index(names, " " $1 " ") { lacks = lacks "  ✗ " $2 ": " $3 " (Debian: " $4 ")\n"; next }
        $1 != "mpirun" && $1 != "cross" { has = has "  ✓ " $2 }
        END { if (has) print has; printf "%s", lacks }'
}

apt_install() {
    local log
    log=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    # An index that cannot be fetched matters only when a package is then not found.
    apt-get -q -o DPkg::Lock::Timeout=120 update >"$log" 2>&1
    if ! apt-get -q -y -o DPkg::Lock::Timeout=120 install --no-install-recommends "$@" \
        >>"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
        echo "apt-get could not install: $*." >&2
        echo "The log is $log: mend what it names and run make deps again." >&2
        return 1
    fi
    rm -f "$log"
}

if [ "${1-}" = --report ]; then
    report "${@:2}"
    exit 0
fi
if [ $# = 0 ]; then
    echo "Nothing to install: compiler, packages and tests' tools are here."
    exit 0
fi

echo "Not found on this machine:"
packages | awk -F'|' -v names=" $* " 'index(names, " " $1 " ") { print "  " $2 ": " $3 }'
debian=$(column 4 "$@" | words)
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "Installing with apt-get: $debian"
    # shellcheck disable=SC2086 # one word per package
    apt_install $debian || exit 1
    echo "Installed."
    exit 0
fi
{
    if command -v apt-get >/dev/null; then
        echo "Install it with: sudo apt-get install --no-install-recommends $debian"
    else
        echo "Install it with: sudo dnf install $(column 5 "$@" | words)"
        echo "or, without root: spack install $(column 6 "$@" | words)"
    fi
    echo "To build without a package, say so: make MPI=0, URING=0, DNNL=0 (CHECK=0: no tests)."
} >&2
exit 1
