#!/bin/bash
# `cohort perf`, `push` and `pull` with real processes, and the real coordinator.
# Usage: tensors_test.sh COHORT COORDINATOR MAKE_CHECKPOINT WORKER
set -u

readonly cohort_binary=$1
readonly coordinator_binary=$2
readonly make_checkpoint=$3
readonly worker_binary=$4
readonly dir=$(mktemp -d)
failures=0

"$coordinator_binary" --listen 127.0.0.1:0 --metrics-listen '' --port-file "$dir/port" \
  >"$dir/coordinator.log" 2>&1 &
readonly coordinator_pid=$!
trap 'kill "$coordinator_pid" 2>/dev/null; wait; rm -rf "$dir"' EXIT

for _ in $(seq 200); do
  [[ -s "$dir/port" ]] && break
  sleep 0.05
done
if [[ ! -s "$dir/port" ]]; then
  echo "the coordinator did not start:"
  cat "$dir/coordinator.log"
  exit 1
fi
export COHORT_COORDINATOR=$(head -n 1 "$dir/port")

cohort() { "$cohort_binary" "$@"; }

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# expect CODE ARGUMENT...: runs the tool; leaves its output in $out and $err.
expect() {
  local want=$1
  shift
  cohort "$@" >"$dir/out" 2>"$dir/err"
  local got=$?
  out=$(cat "$dir/out")
  err=$(cat "$dir/err")
  if [[ $got != "$want" ]]; then
    fail "cohort $* exited with $got, not $want; out: $out; err: $err"
  fi
}

# contains WHAT TEXT: TEXT has WHAT in it.
contains() { [[ $2 == *"$1"* ]] || fail "'$1' is not in: $2"; }

# finished PID CODE NAME: the background command ended with CODE.
finished() {
  wait "$1"
  local got=$?
  [[ $got == "$2" ]] || fail "$3 exited with $got, not $2; err: $(cat "$dir/$3.err" 2>/dev/null)"
}

# until_true COMMAND...: within ten seconds.
until_true() {
  for _ in $(seq 100); do
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.1
  done
  fail "never true: $*"
}

# rank_process STARTER RANK: the id of the process that a `cohort perf --members` started for it.
rank_process() {
  local status
  for status in /proc/[0-9]*/status; do
    grep -q "^PPid:[[:space:]]*$1\$" "$status" 2>/dev/null || continue
    tr '\0' ' ' <"${status%status}cmdline" | grep -q -- "--rank $2 " || continue
    status=${status%/status}
    echo "${status#/proc/}"
    return 0
  done
  return 1
}

gone() { ! kill -0 "$1" 2>/dev/null; }

# --- All collectives, as processes that one command starts.
readonly rows=27 # nine operations of three sizes
for members in 2 3; do
  more=()
  [[ $members == 2 ]] || more=(--iterations 20)
  expect 0 perf --members $members --sizes 8,4096,1M --json --timeout 30s "${more[@]}"
  [[ $(wc -l <"$dir/out") == "$rows" ]] || fail "$members members: not $rows rows: $out"
  [[ $(grep -c '"wrong_count":0' "$dir/out") == "$rows" ]] || fail "$members members: $out"
  ! grep -q '"wrong_count":[1-9]' "$dir/out" || fail "$members members: $out"
  contains "\"world_size\":$members" "$out"
done
expect 0 perf reduce_scatter gather --members 2 --sizes 1000 --type bf16 --reduction avg --root 1 \
  --memory plain --iterations 20 --timeout 30s
contains 'all results are right' "$out"
contains 'bf16' "$out"
expect 0 perf --members 1 --sizes 64 --iterations 3 --timeout 30s

# --- Ranks that are started one by one, with different options.
cohort perf all_reduce --group apart --rank 1 --world-size 2 --sizes 8 --timeout 30s \
  >"$dir/apart.out" 2>"$dir/apart.err" &
apart=$!
expect 0 perf all_reduce --group apart --rank 0 --world-size 2 --sizes 8 --timeout 30s
contains all_reduce "$out"
finished "$apart" 0 apart
cohort perf all_reduce --group unlike --rank 1 --world-size 2 --sizes 16 --timeout 30s \
  >"$dir/unlike.out" 2>"$dir/unlike.err" &
unlike=$!
expect 2 perf all_reduce --group unlike --rank 0 --world-size 2 --sizes 8 --timeout 30s
contains 'rank 0 all_reduce of 2 f32 by sum, rank 1 all_reduce of 4 f32 by sum' "$err"
finished "$unlike" 2 unlike

# --- A rank of a worker is of its command's tenant, too.
"$worker_binary" --listen 127.0.0.1:0 --metrics-listen '' --coordinator "$COHORT_COORDINATOR" \
  --port-file "$dir/worker_port" >"$dir/worker.log" 2>&1 &
readonly worker_pid=$!
trap 'kill "$worker_pid" "$coordinator_pid" 2>/dev/null; wait; rm -rf "$dir"' EXIT
until_true test -s "$dir/worker_port"
for form in attached remote; do
  rank=(perf all_reduce --tenant a --group "$form" --world-size 2 --sizes 8 --timeout 30s)
  cohort "${rank[@]}" --rank 1 --form "$form" --worker "$(head -n 1 "$dir/worker_port")" \
    >"$dir/$form.out" 2>"$dir/$form.err" &
  of_worker=$!
  expect 0 "${rank[@]}" --rank 0
  finished "$of_worker" 0 "$form"
done

# --- What cannot be.
expect 2 perf sing --members 2
expect 2 perf --members 2 --rank 0
expect 2 perf --members 2 --sizes 8x
expect 2 perf --members 2 --root 2
expect 2 perf all_reduce --members 2 --type bf16 --reduction bit_xor
expect 2 perf --members 2 --form remote
contains 'one --worker' "$err"
expect 5 perf --members 2 --form remote --worker 127.0.0.1:1 --worker 127.0.0.1:2 --timeout 2s
contains 'the worker at 127.0.0.1:' "$err"

# --- GPUs that are not there: the error depends on the hardware and driver of this machine.
for members in '' '--members 200'; do
  flags=(perf all_reduce --device cuda:99 --sizes 8 --timeout 10s)
  [[ -n $members ]] || flags+=(--group gpus --rank 0 --world-size 1)
  cohort "${flags[@]}" $members >"$dir/gpu.out" 2>"$dir/gpu.err"
  code=$?
  [[ $code == 1 || $code == 2 || $code == 9 ]] || fail "a GPU that is not there: $code"
  grep -q 'GPU\|CUDA\|device' "$dir/gpu.err" || fail "no GPU is named: $(cat "$dir/gpu.err")"
  cat "$dir/gpu.err"
done

# --- A rank is killed: the command ends soon, names it, and leaves no process behind.
"$cohort_binary" perf all_reduce --members 3 --sizes 4K --iterations 3000000 --timeout 60s \
  >"$dir/killed.out" 2>"$dir/killed.err" &
killed=$!
until_true grep -q '#wrong' "$dir/killed.out"
victim=$(rank_process "$killed" 1) || fail "rank 1 is not there"
other=$(rank_process "$killed" 2) || fail "rank 2 is not there"
begin=$SECONDS
kill -9 "${victim:-$killed}"
finished "$killed" 6 killed
[[ $((SECONDS - begin)) -le 8 ]] || fail "took $((SECONDS - begin)) s to notice a killed rank"
contains "rank 1 (process $victim) was killed by signal 9" "$(cat "$dir/killed.err")"
gone "$other" || fail "rank 2 lives on"

# --- The command is told to end.
"$cohort_binary" perf all_reduce --members 2 --sizes 4K --iterations 10000000 --timeout 60s \
  >"$dir/ended.out" 2>"$dir/ended.err" &
ended=$!
until_true grep -q '#wrong' "$dir/ended.out"
victim=$(rank_process "$ended" 0) || fail "rank 0 is not there"
kill "$ended"
finished "$ended" 143 ended
gone "$victim" || fail "rank 0 lives on"

# --- A checkpoint: to a file, compared with one, and just checked.
"$make_checkpoint" "$dir/model.safetensors" --megabytes 1 >/dev/null || fail "no checkpoint"
# pull NAME RANK WORLD FLAG...: in the background; its id is in $puller.
pull() {
  local name=$1 rank=$2 world=$3
  shift 3
  "$cohort_binary" pull --group "$group" --rank "$rank" --world-size "$world" --timeout 30s "$@" \
    >"$dir/$name.out" 2>"$dir/$name.err" &
  puller=$!
}
group=good
pull writer 1 4 --output "$dir/copy.safetensors"
writer=$puller
pull verifier 2 4 --verify "$dir/model.safetensors"
verifier=$puller
pull checker 3 4 --json
checker=$puller
expect 0 push "$dir/model.safetensors" --group good --world-size 4 --timeout 30s
contains '11 tensors' "$out"
for name in writer verifier checker; do finished "${!name}" 0 "$name"; done
cmp "$dir/model.safetensors" "$dir/copy.safetensors" || fail "the copy differs"
crc32=$(python3 -c 'import sys, zlib; print("%08x" % zlib.crc32(open(sys.argv[1], "rb").read()))' \
  "$dir/model.safetensors")
contains "crc32 $crc32" "$out"
contains "\"crc32\":\"$crc32\"" "$(cat "$dir/checker.out")"

# --- Damage is refused on all members, and nothing is written.
python3 - "$dir/model.safetensors" "$dir/damaged.safetensors" <<'PYTHON'
import sys
content = bytearray(open(sys.argv[1], "rb").read())
at = content.index(b'"BF16"')
content[at : at + 6] = b'"F64" '  # of other sizes than the offsets tell
open(sys.argv[2], "wb").write(content)
PYTHON
head -c 5000000 "$dir/model.safetensors" >"$dir/cut.safetensors"
for damage in damaged cut; do
  group=$damage
  code=2
  pull writer 1 3 --output "$dir/refused.safetensors"
  writer=$puller
  pull checker 2 3
  checker=$puller
  expect $code push "$dir/$damage.safetensors" --group "$damage" --world-size 3 --timeout 30s
  contains "$damage.safetensors" "$err"
  [[ $damage != cut ]] || contains 'but the file has' "$err"
  for name in writer checker; do
    finished "${!name}" $code "$name"
    contains "rank 0, which pushes: checkpoint $dir/$damage.safetensors" "$(cat "$dir/$name.err")"
  done
  ! compgen -G "$dir/refused*" || fail "$damage: the file is there"
done

# --- A file that is not there is reported at once: the group of three never forms.
expect 4 push "$dir/absent.safetensors" --group absent --world-size 3 --timeout 300s
contains 'absent.safetensors' "$err"

# --- What one rank cannot keep does not stop the others, and the root gets the error.
group=unkept
pull unkept 1 3 --verify "$dir/copy.safetensors"
unkept=$puller
printf x | dd of="$dir/model.safetensors" bs=1 seek=7000000 conv=notrunc 2>/dev/null
pull checker 2 3
checker=$puller
expect 1 push "$dir/model.safetensors" --group unkept --world-size 3 --timeout 30s
contains 'DATA_LOSS: rank 1: the received checkpoint differs from' "$err"
finished "$unkept" 1 unkept
contains "the first difference is in tensor 'model.layers.0." "$(cat "$dir/unkept.err")"
finished "$checker" 0 checker

# --- Nor does a rank that knows before the transfer that it will fail.
group=unwritable
pull unwritable 1 3 --output "$dir/missing/model.safetensors"
unwritable=$puller
pull incomparable 2 3 --verify "$dir/cut.safetensors"
incomparable=$puller
expect 4 push "$dir/model.safetensors" --group unwritable --world-size 3 --timeout 30s
contains "NOT_FOUND: rank 1: cannot make $dir/missing/model.safetensors" "$err"
finished "$unwritable" 4 unwritable
finished "$incomparable" 2 incomparable

# --- A pull that is ended while it waits removes its temporary file.
group=waiting
pull waiter 1 2 --output "$dir/waited.safetensors"
waiter=$puller
until_true compgen -G "$dir/waited*tmp"
kill "$waiter"
finished "$waiter" 143 waiter
! compgen -G "$dir/waited*" || fail "the file that was begun is there"

if [[ $failures -gt 0 ]]; then
  echo "$failures failures; the coordinator said:"
  tail -50 "$dir/coordinator.log"
  exit 1
fi
echo "all passed"
