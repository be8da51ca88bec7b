# SPDX-License-Identifier: Apache-2.0
# Whether tests/equal/matrix.txt keeps its promises, which its head explains: a
# sentence for each that is broken, then how many were looked at and how many
# hold. Runs nothing. -v rows=N -v check=N: how many rows there are at least.

function promise(kept, text) {
    promises++
    if (kept) held++
    else print text
}

# Row r's value in a column; the dtype is its group's.
function value(r, name) {
    return name == "dtype" ? dtype[cell[r, "group"]] : cell[r, name]
}

# A group's simplest run: one rank and thread, stage 0, nothing else said, and
# run whenever another one of the group is.
function simplest(r,    i, v) {
    for (i = 3; i <= columns; i++) {
        v = cell[r, column[i]]
        if (column[i] ~ /^(ranks|threads)$/ ? v != 1 : column[i] == "stage" ? v != 0 : v != "-")
            return 0
    }
    return cell[r, "when"] == "check" || !checked[cell[r, "group"]]
}

function forbidden(a, x, b, y) {
    return (a, x, b, y) in never || (b, y, a, x) in never
}

$1 == "" || $1 ~ /^#/ { next }
$1 == "model" {
    dtype[$2] = $3
    next
}
$1 == "axis" {
    axis[++axes] = $2
    for (i = 3; i <= NF; i++) {
        of[axes, i - 2] = $i
        known[$2, $i] = 1
    }
    values[axes] = NF - 2
    next
}
$1 == "never" {
    n = split($3, left, ",")
    m = split($5, right, ",")
    for (i = 1; i <= n; i++)
        for (j = 1; j <= m; j++) never[$2, left[i], $4, right[j]] = 1
    next
}
!columns {
    columns = NF
    for (i = 1; i <= NF; i++) column[i] = $i
    next
}
{
    table++
    for (i = 1; i <= columns; i++) cell[table, column[i]] = $i
    if ($2 == "check") checked[$1]++
    checks += $2 == "check"
    promise(NF == columns && $1 in dtype && ($2 == "check" || $2 == "all"),
        "not a row of this table: " $0)
}

END {
    promise(table >= rows, "the table has " table + 0 " rows; " rows " are promised")
    promise(checks >= check, checks + 0 " rows are for make check; " check " are promised")
    for (r = 1; r <= table; r++)
        for (a = 1; a <= axes; a++) {
            v = value(r, axis[a])
            if (!((axis[a], v) in known)) promise(0, "row " r " has a " axis[a] " of " v)
            count[axis[a], v]++
            for (b = 1; b < a; b++) met[axis[b], value(r, axis[b]), axis[a], v] = 1
        }
    for (r = 1; r <= table; r++) {
        group = cell[r, "group"]
        if (!seen[group]++)
            promise(simplest(r), "the first row of " group " is not its simplest run")
    }
    for (a = 1; a <= axes; a++)
        for (i = 1; i <= values[a]; i++) {
            x = of[a, i]
            n = count[axis[a], x]
            promise(n >= 3, axis[a] " " x " stands in " n + 0 " rows; three are promised")
            for (b = a + 1; b <= axes; b++)
                for (j = 1; j <= values[b]; j++) {
                    y = of[b, j]
                    if (!forbidden(axis[a], x, axis[b], y))
                        promise((axis[a], x, axis[b], y) in met,
                            axis[a] " " x " and " axis[b] " " y " stand in no row together")
                }
        }
    print promises + 0, held + 0
}
