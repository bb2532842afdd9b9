#!/usr/bin/env bash
# The service `tests` runs this script: a barrier and objects through the coordinator, then the collectives and a
# checkpoint over all workers. Exits with 0 if all of it was right.
#
#   COHORT_COORDINATOR=ADDRESS COHORT_FORM=remote COHORT_WORKERS="ADDRESS..." tests.sh
set -euo pipefail

read -r -a workers <<< "$COHORT_WORKERS"
readonly world=${#workers[@]}
readonly form=${COHORT_FORM:-remote}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Runs the function given once per rank, as processes of their own; shows the errors of those that fail.
all_ranks() {
  local pids=() rank status=0
  for ((rank = 0; rank < world; rank++)); do
    "$@" "$rank" > "$scratch/out.$rank" 2> "$scratch/err.$rank" < /dev/null &
    pids+=($!)
  done
  for rank in "${!pids[@]}"; do
    wait "${pids[$rank]}" || { status=1; echo "rank $rank: $(cat "$scratch/err.$rank")" >&2; }
  done
  return "$status"
}

step() {
  local name=$1
  shift
  "$@" || { echo "failed: $name" >&2; exit 1; }
  echo "passed: $name"
}

# The flags by which a rank joins.
join_flags() {
  local rank=$1
  echo "--rank $rank --world-size $world --form $form"
  [[ $form == local ]] || echo "--worker ${workers[$rank]}"
}

barrier() { cohort barrier tests-barrier --rank "$1" --world-size "$world" --timeout 60s; }

all_gather() {
  cohort object all-gather tests-objects "$scratch/object.$1" --rank "$1" --world-size "$world" \
    --output-dir "$scratch/gathered.$1" --timeout 60s
}

objects() {
  local rank reader writer
  for ((rank = 0; rank < world; rank++)); do echo "hello from rank $rank" > "$scratch/object.$rank"; done
  all_ranks all_gather || return 1
  for ((reader = 0; reader < world; reader++)); do
    for ((writer = 0; writer < world; writer++)); do
      cmp "$scratch/object.$writer" "$scratch/gathered.$reader/rank-$writer" || return 1
    done
  done
}

# Each row checks its results; the exit status is 1 if one was wrong.
perf() {
  local flags=()
  if [[ $form != local ]]; then
    local worker
    for worker in "${workers[@]}"; do flags+=(--worker "$worker"); done
  fi
  cohort perf all_reduce broadcast all_gather reduce_scatter all_to_all --sizes 8,64K,1M --members "$world" \
    --form "$form" ${flags[@]+"${flags[@]}"} --iterations 5 --warmup 1 --timeout 60s
}

# A checkpoint in the safetensors format: the length of the header, the header, the numbers.
make_checkpoint() {
  local header='{"weight":{"dtype":"F32","shape":[512,1024],"data_offsets":[0,2097152]},'
  header+='"bias":{"dtype":"F32","shape":[1024],"data_offsets":[2097152,2101248]}}'
  local length=${#header} octal
  # Little-endian, eight bytes; the header is shorter than 256.
  octal=$(printf '%03o' "$length")
  printf '%b' "\\0$octal\\0000\\0000\\0000\\0000\\0000\\0000\\0000" > "$1"
  printf '%s' "$header" >> "$1"
  head -c 2101248 /dev/urandom >> "$1"
}

transfer() {
  local flags
  read -r -d '' -a flags <<< "$(join_flags "$1")" || true
  if [[ $1 -eq 0 ]]; then
    cohort push "$scratch/checkpoint" --group tests-checkpoint "${flags[@]}" --timeout 60s
  else
    cohort pull --verify "$scratch/checkpoint" --group tests-checkpoint "${flags[@]}" --timeout 60s
  fi
}

checkpoint() {
  make_checkpoint "$scratch/checkpoint"
  all_ranks transfer
}

step "the coordinator answers" cohort server
step "barrier of $world processes" all_ranks barrier
step "an object of each to all, compared byte by byte" objects
step "collectives of $world ranks ($form), results checked" perf
step "a checkpoint from rank 0 to all others ($form), compared" checkpoint
