#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The law of equal bits, for programs: runs gpt2 as tests/equal/matrix.txt says.
#     tests/equal/matrix.sh check|all|--self-test GPT2 [GROUP]
# The digest, and every step's loss, norm and held-out loss of a run must be
# those of its group's first run, bit for bit. A row that this machine cannot
# run is skipped, with gpt2's own reason. Make it run by: make check ONLY=matrix.sh.
# --self-test spoils runs in every way that has to be noticed.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1
table=tests/equal/matrix.txt
micro_steps=12 # of all ranks together
limit=60       # seconds for a run
. tests/support/verdicts.sh
reference=$scratch/reference result=$scratch/result

# The cells of the row in use, by column, and what they come to.
declare -A cell
columns=() command=()

load_table() {
    read -ra columns < <(grep '^group ' "$table")
    mapfile -t rows < <(grep -vE '^(#|model |axis |never |group |$)' "$table")
}

# Sets cell and command; the log is the last word of it.
take_row() {
    local row=$1 name values group options=() launch=()
    read -ra values <<<"$row"
    for name in "${!columns[@]}"; do
        cell[${columns[name]}]=${values[name]:--}
    done
    read -r _ group dtype options < <(grep "^model ${cell[group]} " "$table")
    read -ra options <<<"--dtype $dtype $options --eval-every 2"
    options+=(--accumulate $((micro_steps / cell[ranks])))
    for name in "${columns[@]:3}"; do
        [ "${cell[$name]}" = - ] && continue
        case $name in
        isa) ;;
        state) options+=(--offload-optimizer "${cell[$name]}") ;;
        param | grad) options+=("--offload-$name" "${cell[$name]}") ;;
        format) options+=(--state "${cell[$name]}") ;;
        sums) options+=(--accumulate-in "${cell[$name]}") ;;
        recompute) options+=(--recompute) ;;
        verify) options+=(--verify-spill) ;;
        *) options+=("--$name" "${cell[$name]}") ;;
        esac
    done
    [ "${#launcher[@]}" = 0 ] || launch=("${launcher[@]}" -n "${cell[ranks]}")
    options+=(--data LICENSE --sample 0 --log)
    command=(env "ZERO_ISA=${cell[isa]#-}" "${launch[@]}" "$gpt2" "${options[@]}")
}

# What must be equal: the bits of each step, and the digest.
bits() {
    [ -f "$scratch/log.csv" ] || return 1
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
             NR > 1 {
                 printf "step %s loss %s norm %s held out %s\n", $at["step"],
                     $at["loss_bits"], $at["norm_bits"], $at["eval_loss"]
             }' "$scratch/log.csv"
    tail -n 1 "$scratch/out" | grep -xE 'digest( (master|m|v)=[0-9a-f]{16}){3}'
}

# Whether gpt2 says that it ran as the row asks.
ran_as_asked() {
    local isa='[a-z0-9]+' threads='[0-9]+' ring='.*'
    [ "${cell[isa]}" = - ] || isa=${cell[isa]}
    [ "${cell[threads]--}" = - ] || threads=${cell[threads]}
    [ "${cell[ring]--}" = - ] || [ "${cell[host-bytes]}" = 1G ] || # all state fits there
        ring="files: .*, ${cell[ring]}, .*"
    [ "${cell[group]}" != terms ] ||
        grep -q '^products by .* three terms' "$scratch/out" || return
    [ "${cell[verify]--}" = - ] ||
        awk '/^files: / && !/, pages checked$/ { exit 1 }' "$scratch/out" || return
    grep -qE ": ${cell[ranks]} ranks?, $threads threads? each .*, $isa kernels\$" "$scratch/out" &&
        grep -qxE "$ring" "$scratch/out"
}

# The reason why this machine cannot run the row; empty: it can.
cannot_run() {
    local refusals=()
    if [ "${cell[ranks]}" -gt 1 ] && [ "${#launcher[@]}" = 0 ]; then
        echo "it needs mpirun"
        return
    fi
    [ "${cell[isa]}" = - ] || refusals+=(-e 'kernels for .* do not run on this CPU')
    [ "${cell[group]}" != terms ] || refusals+=(-e '.-bf16x3 needs AMX')
    [ "${cell[ring]--}" != uring ] ||
        refusals+=(-e 'has no io_uring' -e 'refuses io_uring' -e "This kernel's io_uring")
    [ "${cell[verify]--}" = - ] || refusals+=(-e 'no checksums for .verify_spill')
    [ "$1" = 0 ] || [ "$1" -ge 124 ] || [ "${#refusals[@]}" = 0 ] || # a hang, or a signal
        grep -m 1 "${refusals[@]}" "$scratch/err"
}

# In a group some steps are clipped and others are not, or clipping is not tested.
clips_some() {
    local clip
    clip=$(grep -oE -- '--clip [0-9.]+' <<<"${command[*]}")
    awk -F, -v clip="${clip#* }" '
        NR == 1 { for (i = 1; i <= NF; i++) if ($i == "norm") norm = i }
        NR > 1 && $norm > clip { over++ }
        NR > 1 && $norm <= clip { under++ }
        END { exit !(over && under) }' "$scratch/log.csv"
}

# What is wrong with the row's run, in lines; empty: nothing.
faults() { # exit status
    if [ "$1" != 0 ]; then
        [ "$1" != 124 ] || echo "  stopped after $limit s"
        echo "  exit status $1"
        sed 's/^/  /' "$scratch/err"
        return
    fi
    ran_as_asked || { echo "  gpt2 does not say that it ran so:" && head -n 2 "$scratch/out"; }
    bits >"$result" || echo "  there is no log, or the last line is not a digest"
    if [ -s "$reference" ]; then
        diff "$reference" "$result" | sed -n 's/^</  expected:/p; s/^>/  but got: /p'
    else
        clips_some || echo "  the norms are all on the same side of --clip"
        mv "$result" "$reference"
    fi
}

# The row's command, complete, to be pasted into a shell.
print_command() {
    local settings
    mapfile -t settings < <(env | grep -E '^OMPI_(MCA|ALLOW)' | grep -v backing_directory)
    echo "  (cd $PWD && env ${settings[*]} ${command[*]:1} log.csv)"
}

# The first row of a group makes its reference.
run_row() {
    local row=$1 status=0 wrong reason
    take_row "$row"
    rm -f "$scratch/log.csv"
    reason=$(cannot_run 0)
    if [ -z "$reason" ]; then
        timeout -k 5 "$limit" "${command[@]}" "$scratch/log.csv" >"$scratch/out" \
            2>"$scratch/err" </dev/null
        status=$?
        reason=$(cannot_run $status)
    fi
    if [ -n "$reason" ]; then
        echo "skipped: $row: $reason"
        return
    fi
    checks=$((checks + 1))
    wrong=$(faults "$status")
    if [ -z "$wrong" ]; then
        echo "equal    $row"
        return
    fi
    failures=$((failures + 1))
    echo "DIFFERS  $row"
    echo "$wrong"
    print_command
}

coverage() {
    awk -v rows=50 -v check=10 -f tests/equal/coverage.awk "$table"
}

# Each of these makes another model, so no two digests are equal.
options_that_matter() {
    local options run=("$gpt2" --layers 1 --channels 16 --seq 16 --batch 1 --steps 3 --sample 0)
    for options in "" "--clip 0.3" "--weight-decay 0.4" "--l2" "--beta1 0.8" "--beta2 0.9" \
        "--eps 1e-3" "--lr 2e-3" "--warmup 3" "--decay 2" "--final-lr 0.4" "--seed 2" \
        "--accumulate 2"; do
        # shellcheck disable=SC2086 # words
        timeout -k 5 "$limit" "${run[@]}" --quiet --data LICENSE $options 2>&1 </dev/null |
            tail -n 1 | sed "s/\$/ $options/"
    done >"$scratch/digests"
    checks=$((checks + 1))
    [ "$(grep '^digest ' "$scratch/digests" | cut -d' ' -f 1-4 | sort -u | wc -l)" = 13 ] && return
    failures=$((failures + 1))
    echo "options without effect, or that failed:"
    sort "$scratch/digests"
}

run_table() { # check|all, group or nothing
    local row when group last=
    load_table
    checks=$((checks + 1))
    coverage | awk 'NR > 1 { print last }
                    { last = $0 }
                    END { exit !($1 > 0 && $1 == $2) }' ||
        failures=$((failures + 1))
    for row in "${rows[@]}"; do
        read -r group when _ <<<"$row"
        [ "$1" = all ] || [ "$when" = check ] || continue
        [ -z "$2" ] || [ "$2" = "$group" ] || continue
        [ "$group" = "$last" ] || rm -f "$reference"
        last=$group
        run_row "$row"
    done
}

# The verdict, the row (isa, stage, threads), and what runs in place of gpt2: a
# script that finds gpt2 in $real and the log in $log.
spoiled() {
    cat <<'LIST'
equal|- 0 1|"$real" "$@"
equal|- 3 2|"$real" "$@"
DIFFERS|- 3 2|"$real" "$@" --seed 8
DIFFERS|- 3 2|"$real" "$@" --eval-every 1
DIFFERS|- 3 2|"$real" "$@" && change 3
DIFFERS|- 3 2|"$real" "$@" && change 5
DIFFERS|- 3 2|"$real" "$@" && sed -i 3d "$log"
DIFFERS|- 3 2|"$real" "$@" && rm "$log"
DIFFERS|- 3 2|"$real" "$@" | sed '$s/master=..../master=0000/'
DIFFERS|- 3 2|"$real" "$@" | sed '$d'
DIFFERS|- 3 2|"$real" "$@" --threads 1
DIFFERS|scalar 3 2|"$real" "$@" | sed '1s/scalar/avx2/'
DIFFERS|- 9 2|"$real" "$@"
DIFFERS|- 3 2|"$real" "$@"; exit 3
DIFFERS|- 3 2|exec sleep 99
DIFFERS|- 3 2|echo "The kernels for avx512 do not run on this CPU." >&2; exit 1
DIFFERS|- 3 2 uring|echo "io_uring could not register 9 bytes" >&2; exit 1
DIFFERS|- 3 2 uring|echo "This system refuses io_uring" >&2; kill -SEGV $$
skipped:|- 3 2 uring|echo "This system refuses io_uring" >&2; exit 1
skipped:|avx512 3 2|echo "The kernels for avx512 do not run on this CPU." >&2; exit 1
LIST
}

# Makes $gpt2 a program that does what script says.
spoil() { # script
    cat >"$gpt2" <<'SCRIPT'
#!/bin/bash
log=${*: -1}
change() { # column: of the second step
    awk -F, -v OFS=, -v column="$1" 'NR == 3 { $column = "0badc0de" } 1' "$log" >"$log.new"
    mv "$log.new" "$log"
}
SCRIPT
    echo "$1" >>"$gpt2"
}

# Whether a spoiled run gets its verdict. A hang need not be waited for long.
spoiled_run() { # verdict, row, script
    local output
    spoil "$3"
    limit=60
    [[ $3 != *sleep* ]] || limit=1
    output=$(run_row "a check 1 $2")
    tested=$((tested + 1))
    [ "${output%% *}" = "$1" ] && return
    missed=$((missed + 1))
    printf 'expected %s of: %s\n%s\n' "$1" "$3" "$output"
}

self_test() {
    local verdict row script tested=0 missed=0
    real=$(realpath "$gpt2") && export real
    gpt2=$scratch/gpt2 table=$scratch/table launcher=()
    : >"$gpt2" && chmod +x "$gpt2"
    cat >"$table" <<'TABLE'
model a bf16 --layers 1 --channels 16 --seq 16 --batch 1 --steps 3 --clip 1.45
group when ranks isa stage threads ring
TABLE
    load_table
    while IFS='|' read -r verdict row script; do
        spoiled_run "$verdict" "$row" "$script"
    done < <(spoiled)
    rm "$reference" # of a first run it is asked that some steps are clipped
    spoiled_run DIFFERS "- 0 1" "\"\$real\" \"\$@\" --steps 1"
    tested=$((tested + 1)) # and a table must have rows, with every value
    run_table check "" >"$scratch/broken"
    [ "$failures" = 1 ] || missed=$((missed + 1))
    checks=$tested failures=$missed
}

gpt2=${2:?"give gpt2: tests/equal/matrix.sh check|all|--self-test GPT2 [GROUP]"}
case $1 in
--self-test) self_test ;;
check | all)
    [ "${3:-bf16}" != bf16 ] || options_that_matter
    run_table "$1" "${3-}"
    ;;
*) exit 2 ;;
esac
closing
