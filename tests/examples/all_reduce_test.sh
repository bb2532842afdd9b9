#!/usr/bin/env bash
# Runs the example of README.md as two ranks, over a real coordinator.
#
#   all_reduce_test.sh ALL_REDUCE COORDINATOR
set -euo pipefail

readonly all_reduce=$1
readonly coordinator=$2
dir=$(mktemp -d)
readonly dir

"$coordinator" --listen 127.0.0.1:0 --metrics-listen '' --port-file "$dir/port" > "$dir/log" 2>&1 &
readonly coordinator_pid=$!
trap 'kill "$coordinator_pid" 2> /dev/null || true; wait; rm -rf "$dir"' EXIT
for _ in $(seq 200); do
  [[ -s $dir/port ]] && break
  sleep 0.05
done
address=$(head -n 1 "$dir/port") || { cat "$dir/log"; exit 1; }

status=0
"$all_reduce" "$address" 1 2 > "$dir/rank1" &
readonly rank1=$!
"$all_reduce" "$address" 0 2 > "$dir/rank0" || status=1
wait "$rank1" || status=1
cat "$dir/rank0" "$dir/rank1"
grep -qx 'rank 0 of 2: the sum is 1' "$dir/rank0"
grep -qx 'rank 1 of 2: the sum is 1' "$dir/rank1"
exit "$status"
