#!/bin/sh
# Runs each peer clean and with a misbehaving NIC, interrupts it, and looks for what it leaves.
# use: check.sh PROGRAM
set -u
program=$(realpath "$1")
TMPDIR=$(mktemp -d)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
failed=0

fail() { echo "FAILED: $*"; failed=1; }

# expect CODE PATTERN ARGUMENTS: the exit code, and a pattern that the JSON object must hold;
# without a pattern nothing may be printed
expect() {
    code=$1 pattern=$2; shift 2
    "$program" --duration-ms 60 --warmup-ms 10 "$@" >"$TMPDIR/json" 2>"$TMPDIR/log"
    got=$?
    [ $got -eq "$code" ] || { fail "$*: exit code $got, not $code"; cat "$TMPDIR/log"; }
    if [ -z "$pattern" ]; then
        [ ! -s "$TMPDIR/json" ] || fail "$*: printed $(cat "$TMPDIR/json")"
        return
    fi
    grep -Eq "$pattern" "$TMPDIR/json" || fail "$*: no /$pattern/ in: $(cat "$TMPDIR/json")"
}

nothing_left() {
    sleep 0.3
    left=$(ls -d "$TMPDIR"/conic-peers-* 2>/dev/null)
    [ -z "$left" ] || fail "$*: left $left"
    # the ends carry this run's private TMPDIR in their environment, so only ours are counted
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/exe" 2>/dev/null)" = "$program" ] || continue
        tr '\0' '\n' <"$process/environ" 2>/dev/null | grep -qx "TMPDIR=$TMPDIR" &&
            fail "$*: left process ${process#/proc/}"
    done
}

for peer in memif memif-zero-copy vhost-user vhost-user-packed ring; do
    for size in 60 64 1500 9600; do
        expect 0 '"lost": 0, "reordered": 0, "corrupted": 0' --peer $peer --packet-size $size
    done
    expect 0 '"window": 1,' --peer $peer --window 1
    expect 0 '"lost": [1-9]' --peer $peer --fault drop
    expect 1 '"corrupted": [1-9]' --peer $peer --fault corrupt
    nothing_left "$peer"
    expect 1 '' --peer $peer --fault crash
    nothing_left "$peer, its NIC crashed"
    for signal in INT TERM KILL; do
        "$program" --peer $peer --duration-ms 20000 >/dev/null 2>&1 &
        sleep 1
        kill -$signal $!
        wait $! 2>/dev/null
        [ $signal != KILL ] || sleep 3
        nothing_left "$peer, SIG$signal"
    done
done
expect 64 '' --peer carrier-pigeon
expect 64 '' --peer ring --packet-size 12
expect 64 '' --peer ring --cores 0,0
[ $failed -eq 0 ] && echo "all checks passed"
exit $failed
