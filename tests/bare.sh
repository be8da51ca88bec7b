#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The README on a machine that has nothing: tests/bare.sh [quick] [SUITE]
# As root, makes a bare Debian or Ubuntu in a folder (debootstrap; bookworm, which
# is Debian 12, unless trixie, jammy, noble ... is given) and runs make demo and
# make check there: as a user whom the machine offers nothing, as root, as that
# user again, and as both without a network. quick takes a short demo and two
# suites instead; the whole takes about an hour. Not a part of make check: it
# downloads 300 MB and mounts. What is mounted lies in a namespace of its own and
# goes with it.
set -u
export LC_ALL=C
here=$(realpath "$0")
tree=$(dirname "$(dirname "$here")")

stop() {
    printf 'bare.sh: %s\n' "$@" >&2
    exit 1
}

mirror() { # the first one of this machine's that has the suite, or the given one
    local uri
    uri=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | awk -v suite="$suite" '
        $1 == "URIs:" { uri = $2 }
        $1 == "Suites:" { for (i = 2; i <= NF; i++) if ($i == suite) { print uri; exit } }
        $1 == "deb" { for (i = 2; i < NF; i++) if ($(i + 1) == suite) { print $i; exit } }')
    echo "${uri:-$1}"
}

# One that this debootstrap has not heard of is made as the last that it has.
bootstrap() { # folder
    local words=(--variant=minbase) keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg from script
    case $suite in
    bullseye | bookworm | trixie | forky | sid)
        from=$(mirror http://deb.debian.org/debian) script=sid
        ;;
    *)
        from=$(mirror http://archive.ubuntu.com/ubuntu) script=gutsy
        words+=("--components=main,universe")
        [ -e $keys ] || { echo "   unsigned: there is no $keys" && words+=(--no-check-gpg); }
        ;;
    esac
    echo "== debootstrap $suite, minbase, from $from"
    debootstrap "${words[@]}" "$suite" "$1" "$from" $script >/tmp/zero-bare.log 2>&1
}

if [ "${1-}" != --inside ]; then
    [ "$(id -u)" = 0 ] || stop "debootstrap, chroot and mount need root."
    for tool in debootstrap unshare ip tar git; do
        command -v $tool >/dev/null ||
            stop "$tool is not here: apt-get install debootstrap iproute2 git."
    done
    root=$(mktemp -d /var/tmp/zero-bare.XXXXXX) && chmod 755 "$root" || exit 1
    trap 'rm -rf --one-file-system "$root"' EXIT
    unshare --mount --pid --fork --kill-child --propagation private \
        "$here" --inside "$root" "$@"
    exit
fi

# ------------------------------------------------------- in our own namespace
root=$2
shift 2
quick=
[ "${1-}" != quick ] || { quick=quick && shift; }
suite=${1-bookworm}
checks=0 failures=0
log=$root/var/log/step
demo="make demo" check="make check"
if [ "$quick" = quick ]; then
    demo="make demo DEMO='--stage 3 --offload nvme --data LICENSE --steps 20 --sample 0'"
    check="make check SANITIZED= ONLY='norm_test mpi_test'"
fi

verdict() { # 0: as it should be, what it shows
    checks=$((checks + 1))
    [ "$1" = 0 ] && echo "   shown: $2" && return
    failures=$((failures + 1))
    echo "   NOT so: $2"
    [ -s "$log" ] && echo "   The end of what was said:" && tail -n 25 "$log" | sed 's/^/   | /'
    : >"$log"
}

prepare() {
    local path
    bootstrap "$root" ||
        stop "debootstrap failed: $(tail -n 3 /tmp/zero-bare.log)"
    rm -f /tmp/zero-bare.log
    # Only what is a mount itself can be left for a namespace of one's own.
    if ! { mount --bind "$root" "$root" && mount -t proc proc "$root/proc" &&
        mount -t sysfs -o ro sysfs "$root/sys" && mount --rbind /dev "$root/dev" &&
        mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"; }; then
        stop "proc, sys and dev could not be mounted in $root."
    fi
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    chroot "$root" useradd --create-home --shell /bin/bash ann
    for path in /root /home/ann; do
        fresh "$path"
    done
}

# A copy of the tree as a clone would have it.
fresh() { # folder
    rm -rf "${root:?}$1/libzero" && mkdir "$root$1/libzero"
    (cd "$tree" && git ls-files -z --cached --others --exclude-standard |
        tar -c --null -T - --ignore-failed-read 2>/dev/null) | tar -x -C "$root$1/libzero"
    chroot "$root" chown -R --reference="$1" "$1/libzero"
}

# Runs a command in the tree of root or ann; "offline" before it: without a network.
as() { # root or ann, command
    local network=()
    if [ "$1" = offline ]; then
        # Open MPI speaks to its ranks over the loopback device.
        # shellcheck disable=SC2016 # the inner shell's word
        network=(unshare --net bash -c 'ip link set lo up && exec "$@"' bash)
        shift
    fi
    local user=$1 home=/root
    [ "$user" = root ] || home=/home/$user
    echo "== $user: $2${network[0]:+ (no network)}"
    "${network[@]}" chroot --userspec="$user:$user" "$root" env -i HOME="$home" USER="$user" \
        http_proxy="${http_proxy-}" https_proxy="${https_proxy-}" \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        bash -c "cd ~/libzero && $2" >"$log" 2>&1 </dev/null
}

shows_demo() {
    verdict $? "the demo ends well"
    grep -q '^digest' "$log"
    verdict $? "its last line: $(grep '^digest' "$log")"
}

shows_check() {
    verdict $? "the tests pass"
    [ "$(grep -c '^100%: .*Failures: 0, Errors: 0$' "$log")" -gt 1 ]
    verdict $? "$(tail -n 1 "$log")"
    grep -i '^[^ ]*: skip\|^skip' "$log" | sort -u | sed 's/^/   skipped: /'
}

prepare
as root "apt-get update && apt-get install -y make"
verdict $? "make is a package away"
! as ann "make demo" && grep -q 'sudo apt-get install' "$log"
verdict $? "a user is told: $(grep 'sudo apt-get' "$log")"
as root "$demo"
shows_demo
as root "$check"
shows_check
as ann "$demo"
shows_demo
online=$(grep '^digest' "$log")
as ann "$check"
shows_check
as root "make install && make uninstall && ! ls /usr/local/lib/libzero*"
verdict $? "root installs what is built, and removes it"
fresh /root
fresh /home/ann
as offline root "$demo"
shows_demo
as offline root "$check"
shows_check
as offline ann "$demo"
shows_demo
[ "$online" = "$(grep '^digest' "$log")" ]
verdict $? "the same digest without a network"
as offline ann "$check"
shows_check

percent=$((100 * (checks - failures) / checks))
echo "$percent%: Checks: $checks, Failures: $failures, Errors: 0"
[ "$failures" = 0 ]
