#!/usr/bin/env bash
# Cohort at work on this machine: installs what is missing, builds, starts a coordinator with a journal on disk,
# lets four processes form a group and pass objects, shows who is missing while one is, kills the coordinator
# while three wait for the fourth, and stops everything again. Ends with a table; exit status 0 if all of it worked.
#
#   deploy/quickstart.sh
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
export HOME=${HOME:-/tmp}
readonly WORLD=4
scratch=$(mktemp -d)
coordinator=
address=

say() { printf '\n== %s\n' "$*"; }

stop_all() {
  [[ -z $coordinator ]] || kill -TERM "$coordinator" 2> /dev/null || true
  wait 2> /dev/null || true
  rm -rf "$scratch"
}
trap stop_all EXIT

build() {
  local cache=${COHORT_BAZEL_CACHE:-$HOME/.cache/cohort-bazel}
  local targets=(//coordinator:cohort-coordinator //worker/cli:cohort)
  bazel build --config=opt "--disk_cache=$cache" --noshow_progress "${targets[@]}"
  local bin
  bin=$(bazel info --config=opt bazel-bin 2> /dev/null)
  cp "$bin/coordinator/cohort-coordinator" "$bin/worker/cli/cohort" "$scratch/"
}

# Starts it on a port of its own choice, or on the one it had.
start_coordinator() {
  rm -f "$scratch/port"
  "$scratch/cohort-coordinator" --listen "${address:-127.0.0.1:0}" --metrics-listen '' \
    --journal sqlite --journal-path "$scratch/journal.db" --port-file "$scratch/port" \
    >> "$scratch/coordinator.log" 2>&1 &
  coordinator=$!
  local deadline=$((SECONDS + 20))
  until [[ -s $scratch/port ]]; do
    if ! kill -0 "$coordinator" 2> /dev/null || [[ $SECONDS -ge $deadline ]]; then
      cat "$scratch/coordinator.log" >&2
      echo "quickstart: the coordinator did not start" >&2
      exit 1
    fi
    read -r -t 0.05 < <(:) || true
  done
  address=$(head -n 1 "$scratch/port")
  export COHORT_COORDINATOR=$address
}

# Runs the command given once per rank, as processes of their own; "RANK" in it is the rank.
all_ranks() {
  local pids=() rank status=0
  for ((rank = 0; rank < WORLD; rank++)); do
    "${@//RANK/$rank}" > "$scratch/out.$rank" 2> "$scratch/err.$rank" < /dev/null &
    pids+=($!)
  done
  for rank in "${!pids[@]}"; do
    wait "${pids[$rank]}" || { status=1; cat "$scratch/err.$rank" >&2; }
  done
  return "$status"
}

passed=()
# Runs a function as a timed line of the table. Inside of it the shell does not stop at errors: each command that
# may fail says `|| return 1`.
step() {
  local name=$1 begin
  shift
  begin=$(date +%s%N)
  "$@" || { echo "quickstart: failed: $name" >&2; exit 1; }
  passed+=("$(printf '%-58s %8d ms' "$name" $((($(date +%s%N) - begin) / 1000000)))")
}

barrier() { all_ranks "$scratch/cohort" barrier quickstart --rank RANK --world-size $WORLD --timeout 30s; }

all_gather() {
  for ((rank = 0; rank < WORLD; rank++)); do echo "hello from rank $rank" > "$scratch/object.$rank"; done
  all_ranks "$scratch/cohort" object all-gather quickstart "$scratch/object.RANK" --rank RANK \
    --world-size $WORLD --output-dir "$scratch/gathered.RANK" --timeout 30s || return 1
  local reader writer
  for ((reader = 0; reader < WORLD; reader++)); do
    for ((writer = 0; writer < WORLD; writer++)); do
      cmp "$scratch/object.$writer" "$scratch/gathered.$reader/rank-$writer" || return 1
    done
  done
}

# Waits until the tool's report on the group has the text.
until_shown() {
  local deadline=$((SECONDS + 20))
  until [[ $("$scratch/cohort" who-is-missing quickstart 2>&1) == *"$1"* ]]; do
    [[ $SECONDS -lt $deadline ]] || return 1
  done
}

late_rank() {
  local pids=() rank
  for ((rank = 0; rank < WORLD - 1; rank++)); do
    "$scratch/cohort" barrier quickstart --rank "$rank" --world-size $WORLD --timeout 60s \
      > "$scratch/out.$rank" 2> "$scratch/err.$rank" &
    pids+=($!)
  done
  until_shown "1 of $WORLD missing" || return 1
  "$scratch/cohort" who-is-missing quickstart
  [[ $? -eq 3 ]] || return 1
  [[ $1 != kill ]] || {
    kill -9 "$coordinator"
    wait "$coordinator" 2> /dev/null || true
    start_coordinator
  }
  "$scratch/cohort" barrier quickstart --rank $((WORLD - 1)) --world-size $WORLD --timeout 60s ||
    return 1
  for rank in "${!pids[@]}"; do wait "${pids[$rank]}" || { cat "$scratch/err.$rank" >&2; return 1; }; done
}

say "packages"
deploy/bootstrap.sh
say "build"
build
say "coordinator with a journal on disk, and $WORLD processes"
step "start the coordinator" start_coordinator
step "barrier of $WORLD processes (join, meet, leave)" barrier
step "all-gather of an object each, compared byte by byte" all_gather
say "one rank comes late"
step "who-is-missing names rank $((WORLD - 1)); then the barrier completes" late_rank wait
say "one rank comes late, and the coordinator is killed (-9) meanwhile"
step "restarted from its journal; the barrier completes" late_rank kill
say "done"
printf '%s\n' "${passed[@]}"
kill -TERM "$coordinator"
wait "$coordinator"
coordinator=
echo "the coordinator ended with status 0; nothing is left behind"
