#!/usr/bin/env bash
# Cohort at work on this machine: installs missing packages, builds, makes certificates, and starts a coordinator with a
# journal on disk. All processes talk to it by mutual TLS.
# Four processes form a group and pass objects. Four workers are started, and four clients beside them: they measure
# all collectives and check the results; one of them pushes a checkpoint to the others, which verify it. Then one
# comes late, and who-is-missing names it; and once more, while the coordinator is killed. Everything is stopped
# again, and looked for. Ends with a table; exit status 0 if all of it worked.
#
#   deploy/quickstart.sh                            # a checkpoint of 200 MB, made here
#   deploy/quickstart.sh --input FILE.safetensors   # one of your own; it is not copied
set -euo pipefail

usage() { sed -n '2,/^set -/p' "${BASH_SOURCE[0]}" | sed -e '/^set -/d' -e 's/^# \{0,1\}//'; }

input=
case $#:${1-} in
  0:) ;;
  2:--input)
    [[ -r $2 ]] || { echo "quickstart: cannot read $2" >&2; exit 2; }
    input=$(realpath "$2")
    ;;
  1:-h | 1:--help) usage; exit 0 ;;
  *) usage >&2; exit 2 ;;
esac

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
export HOME=${HOME:-/tmp}
readonly WORLD=4
scratch=$(mktemp -d)
coordinator=
address=
workers=()
# How each rank takes part: a worker is the rank, and lends its memory to the client that computes.
rank_flags=(--form attached)

# Marks all processes of this run, so that left-over ones are found.
export COHORT_QUICKSTART=$scratch
export TMPDIR=$scratch/tmp
mkdir "$TMPDIR"
deploy/left_behind.py --sockets > "$scratch/sockets.before"

say() { printf '\n== %s\n' "$*"; }

stop_all() {
  local pids
  mapfile -t pids < <(jobs -p)
  [[ ${#pids[@]} -eq 0 ]] || kill -TERM "${pids[@]}" 2> /dev/null || true
  wait 2> /dev/null || true
  rm -rf "$scratch"
}
trap stop_all EXIT

build() {
  local cache=${COHORT_BAZEL_CACHE:-$HOME/.cache/cohort-bazel}
  local targets=(//coordinator:cohort-coordinator //worker/daemon:cohort-worker //worker/cli:cohort)
  # The server of bazel stays for the next build; it does not count as left behind.
  env -u COHORT_QUICKSTART -u TMPDIR bazel build --config=quickstart "--disk_cache=$cache" --noshow_progress "${targets[@]}"
  local bin
  bin=$(env -u COHORT_QUICKSTART -u TMPDIR bazel info --config=quickstart bazel-bin 2> /dev/null)
  cp "$bin/coordinator/cohort-coordinator" "$bin/worker/daemon/cohort-worker" "$bin/worker/cli/cohort" "$scratch/"
}

make_certificates() {
  local folder=$scratch/certificates
  deploy/certificates.sh "$folder" coordinator=DNS:localhost,IP:127.0.0.1 rank=URI:spiffe://quickstart/rank || return 1
  export COHORT_TLS_CA=$folder/rank/ca.crt COHORT_TLS_CERTIFICATE=$folder/rank/tls.crt COHORT_TLS_KEY=$folder/rank/tls.key
}

# Starts it on a port of its own choice, or on the one it had.
start_coordinator() {
  rm -f "$scratch/port"
  "$scratch/cohort-coordinator" --listen "${address:-127.0.0.1:0}" --metrics-listen '' \
    --journal sqlite --journal-path "$scratch/journal.db" --port-file "$scratch/port" \
    --tls-certificate "$scratch/certificates/coordinator/tls.crt" --tls-key "$scratch/certificates/coordinator/tls.key" \
    --tls-client-ca "$scratch/certificates/coordinator/ca.crt" \
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

# One for each rank, at a Unix socket of its own.
start_workers() {
  local rank deadline=$((SECONDS + 20))
  for ((rank = 0; rank < WORLD; rank++)); do
    "$scratch/cohort-worker" --coordinator "$address" --listen "unix:$scratch/worker-$rank" --metrics-listen '' \
      --port-file "$scratch/worker-$rank.port" >> "$scratch/worker-$rank.log" 2>&1 &
    workers+=($!)
    rank_flags+=(--worker "unix:$scratch/worker-$rank")
  done
  for ((rank = 0; rank < WORLD; rank++)); do
    until [[ -s $scratch/worker-$rank.port ]]; do
      kill -0 "${workers[$rank]}" 2> /dev/null && [[ $SECONDS -lt $deadline ]] ||
        { cat "$scratch/worker-$rank.log" >&2; return 1; }
      read -r -t 0.05 < <(:) || true
    done
  done
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

collectives() {
  "$scratch/cohort" perf --members $WORLD "${rank_flags[@]}" --sizes 4K,256K,4M --timeout 60s
}

make_checkpoint() {
  input=$scratch/model.safetensors
  made=1
  deploy/make_checkpoint.py "$input" || return 1
}

# The last rank keeps a copy of a checkpoint that was made here; it only compares a user's own.
checkpoint() {
  local pids=() rank status=0 flags
  for ((rank = 1; rank < WORLD; rank++)); do
    flags=(--verify "$input")
    [[ -z $made || $rank -lt $((WORLD - 1)) ]] || flags=(--output "$scratch/copy.safetensors")
    "$scratch/cohort" pull --group checkpoint --rank "$rank" --world-size $WORLD "${rank_flags[@]}" "${flags[@]}" \
      > "$scratch/out.$rank" 2> "$scratch/err.$rank" &
    pids+=($!)
  done
  "$scratch/cohort" push "$input" --group checkpoint --world-size $WORLD "${rank_flags[@]}" || status=1
  for ((rank = 1; rank < WORLD; rank++)); do
    wait "${pids[$((rank - 1))]}" || { status=1; cat "$scratch/err.$rank" >&2; }
    cat "$scratch/out.$rank"
  done
  [[ $status -eq 0 ]] || return 1
  [[ -z $made ]] || cmp "$input" "$scratch/copy.safetensors" || return 1
}

# Stops what still runs, and looks for what should be gone.
stop_and_look() {
  local worker
  kill -TERM "${workers[@]}"
  for worker in "${workers[@]}"; do
    wait "$worker" || { echo "a worker ended with status $?" >&2; return 1; }
  done
  kill -TERM "$coordinator"
  wait "$coordinator" || { echo "the coordinator ended with status $?" >&2; return 1; }
  coordinator=
  ! (exec 3<> "/dev/tcp/${address%:*}/${address##*:}") 2> /dev/null ||
    { echo "a process still listens on $address" >&2; return 1; }
  local files
  files=$(find "$TMPDIR" "$scratch" -name '*.tmp' -o -path "$TMPDIR/*")
  [[ -z $files ]] || { echo "files are left: $files" >&2; return 1; }
  rm -rf "$scratch/journal.db"* "$scratch"/*.safetensors
  deploy/left_behind.py "COHORT_QUICKSTART=$scratch" "$scratch/sockets.before" || return 1
}

made=
say "packages"
deploy/bootstrap.sh
say "build"
build
say "coordinator with a journal on disk, and $WORLD processes"
step "make certificates for mutual TLS" make_certificates
step "start the coordinator" start_coordinator
step "barrier of $WORLD processes (join, barrier, leave)" barrier
step "all-gather of an object each, compared byte by byte" all_gather
say "$WORLD workers; all collectives of $WORLD processes beside them, each result checked"
step "start $WORLD workers" start_workers
step "all collectives, measured, every element right" collectives
say "a checkpoint from rank 0 to the $((WORLD - 1)) others"
[[ -n $input ]] || step "make a checkpoint" make_checkpoint
step "push it; $((WORLD - 1)) ranks verify it tensor by tensor" checkpoint
say "one rank comes late"
step "who-is-missing names rank $((WORLD - 1)); then the barrier completes" late_rank wait
say "one rank comes late, and the coordinator is killed (-9) meanwhile"
step "restarted from its journal; the barrier completes" late_rank kill
say "stop"
step "no process, file, shared memory or socket is left" stop_and_look
say "done"
printf '%s\n' "${passed[@]}"
