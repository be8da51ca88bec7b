#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A drive that fails, seen by who runs gpt2: tests/verify.sh GPT2
# A library that is loaded before the others stands for the drive: it fails, or
# spoils, reads and writes of one rank's files. A transfer that fails for a moment
# changes no digest, is warned of by its rank and counted at the end; one that
# fails for good, and with --verify-spill one that brings other bytes, ends the
# run with a sentence. Make it run by: make check ONLY=verify.sh.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
gpt2=${1:?"give gpt2: tests/verify.sh GPT2"}
. tests/support/verdicts.sh
export ZERO_PROBE=0 TMPDIR=$scratch
ranks=2
[ "${#launcher[@]}" != 0 ] || { ranks=1 && echo "skipped: 2 ranks: needs mpirun"; }

cat >"$scratch/drive.c" <<'CODE'
/* DRIVE="RANK WHAT FIRST LAST": of that rank's reads (WHAT is r), writes (w) or
 * reads (s: spoiled instead) of whole pages, those numbered FIRST to LAST. */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_int reads, writes;

static int chosen(char what, atomic_int *number, size_t n)
{
    const char *drive = getenv("DRIVE"), *mine = getenv("OMPI_COMM_WORLD_RANK");
    int rank, first, last;
    char asked;
    if (!drive || sscanf(drive, "%d %c %d %d", &rank, &asked, &first, &last) != 4 || n % 4096)
        return 0;
    if (rank != (mine ? atoi(mine) : 0) || (asked == 'w') != (what == 'w'))
        return 0;
    int now = atomic_fetch_add(number, 1) + 1;
    return now >= first && now <= last ? asked : 0;
}

ssize_t pread(int fd, void *p, size_t n, off_t at)
{
    static ssize_t (*real)(int, void *, size_t, off_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pread");
    int what = chosen('r', &reads, n);
    if (what == 'r')
        return errno = EIO, -1;
    ssize_t got = real(fd, p, n, at);
    if (what == 's' && got > 0)
        ((char *)p)[got / 2] ^= 4;
    return got;
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pwrite");
    if (chosen('w', &writes, n))
        return errno = EIO, -1;
    return real(fd, p, n, at);
}
CODE
${CC:-cc} -D_GNU_SOURCE -shared -fPIC -O1 "$scratch/drive.c" -o "$scratch/drive.so" -ldl
verdict $? "the drive cannot be compiled"

run() { # DRIVE, options
    local options launch=()
    [ "$ranks" = 1 ] || launch=("${launcher[@]}" -n "$ranks" -x DRIVE -x LD_PRELOAD)
    read -ra options <<<"$2 --stage 3 --offload nvme --ring posix --layers 2 --channels 64 --seq 32"
    options+=(--batch 1 --steps 3 --sample 0 --data LICENSE --chunk 16K --nvme-path "$scratch")
    env DRIVE="$1" LD_PRELOAD="$scratch/drive.so" \
        timeout -k 5 60 "${launch[@]}" "$gpt2" "${options[@]}" >"$scratch/out" 2>"$scratch/err"
}

says() { # file, pattern, what
    grep -qE -- "$2" "$scratch/$1"
    verdict $? "$3: no '$2' in $(cat "$scratch/err")"
}

recovers() { # DRIVE, how often it is tried again, options
    run "$1" "$3"
    verdict $? "drive '$1' $3: $(cat "$scratch/err")"
    [ "$(grep ^digest "$scratch/out")" = "$(cat "$scratch/digest")" ]
    verdict $? "drive '$1' $3: another digest"
    says out "^transfers that failed and were tried again: $2; " "drive '$1' $3"
    local warning="^libzero: warning: rank ${1%% *}: .*trying again \([23] of 3\): .*Input/output"
    [ "$(grep -cE "$warning" "$scratch/err")" = "$2" ]
    verdict $? "drive '$1' $3: not $2 warnings: $(cat "$scratch/err")"
}

ends() { # DRIVE, options, pattern
    run "$1" "$2"
    [ $? = 1 ]
    verdict $? "drive '$1' $2: it did not end with status 1"
    says err "^rank ${1%% *}: $3" "drive '$1' $2"
    ! grep -q ^digest "$scratch/out"
    verdict $? "drive '$1' $2: there is a digest"
}

last=$((ranks - 1))
run "9 r 0 0" ""
verdict $? "undisturbed: $(cat "$scratch/err")"
grep ^digest "$scratch/out" >"$scratch/digest"
verdict $? "undisturbed: no digest"
! grep -q '^transfers that failed' "$scratch/out" && [ ! -s "$scratch/err" ]
verdict $? "undisturbed: $(cat "$scratch/err")"
recovers "$last r 7 7" 1 ""
recovers "$last w 20 20" 1 ""
gone="ing .*, chunk [0-9]+: .*: Input/output error\..* It was tried 3 times\."
ends "$last r 12 9999" "" "Read$gone"
ends "$last w 20 9999" "" "Writ$gone"
if "$gpt2" --help | grep -q -e --verify-spill; then
    run "9 r 0 0" --verify-spill
    [ "$(grep ^digest "$scratch/out")" = "$(cat "$scratch/digest")" ]
    verdict $? "checked: another digest, or none: $(cat "$scratch/err")"
    recovers "$last w 20 20" 1 --verify-spill
    ends "$last s 12 12" --verify-spill "Reading .*, chunk [0-9]+: the page at offset [0-9]+ of "
    run "$last s 8 16" "" && grep -q ^digest "$scratch/out" && # the control: it is silent
        [ "$(grep ^digest "$scratch/out")" != "$(cat "$scratch/digest")" ]
    verdict $? "spoiled and not checked: no run, or the digest is right: $(cat "$scratch/err")"
else
    echo "skipped: --verify-spill: this build has no checksums"
fi
closing
