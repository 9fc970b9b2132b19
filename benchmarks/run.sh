#!/bin/sh
# Runs every benchmark, one after the other, and names those that failed.
#
#   sh benchmarks/run.sh [--quick] [other options of the benchmarks]
#
# A benchmark is a file benchmarks/<package>/bench_<subject>.py that runs on its own, takes
# --quick, and exits with a status. They run alone because a neighbour would spoil the figures.
set -u
cd "$(dirname "$0")/.." || exit 1

failed=""
count=0
for script in benchmarks/*/bench_*.py; do
    [ -e "$script" ] || continue
    count=$((count + 1))
    printf '\n== %s\n' "$script"
    python "$script" "$@" || failed="$failed $script"
done

if [ -n "$failed" ]; then
    printf '\nfailed:%s\n' "$failed" >&2
    exit 1
fi
printf '\n%d benchmarks ran\n' "$count"
