#!/bin/bash
# The real `cohort` against the real coordinator.
# Usage: cli_test.sh COHORT COORDINATOR
set -u

readonly cohort_binary=$1
readonly coordinator_binary=$2
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

# --- Usage, and no coordinator.
expect 0 --version
expect 2 nonsense
expect 5 server --coordinator 127.0.0.1:1 --timeout 1500ms
contains UNAVAILABLE "$err"
contains 'the coordinator at 127.0.0.1:1 cannot be reached (Connection refused); trying for' "$err"

# --- The reason of a failed TLS handshake is in the error, and gRPC writes its own lines only if asked to.
openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=ca -keyout "$dir/ca.key" -out "$dir/ca.crt" \
  2>"$dir/openssl.log" || fail "no CA: $(cat "$dir/openssl.log")"
export COHORT_TLS_CA=$dir/ca.crt
expect 5 limits --timeout 1500ms
contains 'TLS: ' "$err"
grep -v '^cohort: ' "$dir/err" && fail "lines that are not of cohort: $err"
GRPC_VERBOSITY=error expect 5 limits --timeout 500ms
contains 'ssl_transport_security.cc' "$err"
unset COHORT_TLS_CA

# --- Server and limits.
expect 0 server
contains serving "$out"
expect 0 server --json
contains '"group_count":0' "$out"
expect 0 limits

# --- Store.
expect 0 store put color red
expect 0 store get color
[[ $out == red ]] || fail "store get printed '$out'"
expect 4 store get absent
expect 3 store get absent --wait 100ms
# A wait in the tenant's own store is listed too.
cohort store get awaited --wait 20s >"$dir/awaited.out" 2>"$dir/awaited.err" &
awaited=$!
until_true sh -c "'$cohort_binary' waits | grep -q \"(tenant's store).*get awaited\""
expect 0 store put awaited here
finished "$awaited" 0 awaited
expect 8 store put color blue --if-revision 0
expect 0 store add steps 7
expect 0 store add steps -5
[[ $out == 2 ]] || fail "store add printed '$out'"
expect 0 store append log ab
expect 0 store push jobs first
expect 0 store pop jobs --wait 1s
[[ $out == first ]] || fail "store pop printed '$out'"
expect 8 store pop jobs
expect 0 store list --json
contains '"key":"color","value":"red"' "$out"
head -c 300000 /dev/urandom >"$dir/binary"
cohort store put binary - <"$dir/binary" >/dev/null || fail "store put from a pipe"
cohort store get binary | cmp - "$dir/binary" || fail "binary value changed on its way"
expect 0 store delete color
expect 4 store delete color

"$cohort_binary" store watch watched/ --json >"$dir/watch.out" 2>"$dir/watch.err" &
watch=$!
until_true sh -c "'$cohort_binary' store add watched/k 1 && grep -q watched/k '$dir/watch.out'"
kill "$watch"
finished "$watch" 143 watch
expect 0 store watch watched/ --timeout 100ms

# --- Barrier: all there; one missing; who-is-missing meanwhile.
cohort barrier pair --rank 1 --world-size 2 --timeout 20s >"$dir/r1.out" 2>"$dir/r1.err" &
rank1=$!
expect 0 barrier pair --rank 0 --world-size 2 --timeout 20s
contains '2 ranks arrived' "$out"
finished "$rank1" 0 r1

cohort barrier lonely --rank 0 --world-size 2 --timeout 3s --json >"$dir/lone.out" \
  2>"$dir/lone.err" &
lone=$!
until_true sh -c "'$cohort_binary' group list | grep -q lonely"
expect 3 who-is-missing lonely
contains 'missing: rank 1;' "$out"
finished "$lone" 3 lone
contains '"code":"DEADLINE_EXCEEDED"' "$(cat "$dir/lone.out")"
contains 'missing' "$(cat "$dir/lone.err")"
expect 4 group show no-such-group
contains NOT_FOUND "$err"

# --- The report of NCCL's threads on this machine: without a listener, with a server that speaks the
# protocol, and with one that does not.
cat >"$dir/ras.py" <<'PYTHON'
import json, socketserver, sys
rank = lambda number, launched: {
    "rank": number, "host": "10.0.0.1", "pid": 40 + number, "cuda_dev": number, "nvml_dev": number,
    "status": {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False,
               "abort_flag": False},
    "collective_counts": {"AllReduce": launched}}
report = {"nccl_version": "2.28.9", "communicators_count": 1, "communicators": [{
    "hash": "0x1a", "secondary_hash": "0x2b", "size": 2, "ranks_count": 2,
    "missing_ranks_count": 0, "ranks": [rank(0, 6), rank(1, 5)], "missing_ranks": []}],
    "ras": {"collection_time_sec": 0.01, "timeouts_count": 0}}
class Nccl(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            if line == b"STATUS\n":
                self.wfile.write(json.dumps(report).encode())
                return
            self.wfile.write(b"SERVER PROTOCOL 2\n" if line.startswith(b"CLIENT") else b"OK\n")
class Silent(socketserver.StreamRequestHandler):
    def handle(self):
        self.rfile.read()
kind = {"nccl": Nccl, "silent": Silent}[sys.argv[1]]
socketserver.ThreadingTCPServer.daemon_threads = True
with socketserver.ThreadingTCPServer(("127.0.0.1", 0), kind) as server:
    with open(sys.argv[2], "w") as port:
        port.write("127.0.0.1:%d\n" % server.server_address[1])
    server.serve_forever()
PYTHON
servers=()
trap 'kill "$coordinator_pid" "${servers[@]}" 2>/dev/null; wait; rm -rf "$dir"' EXIT
for kind in nccl silent; do
  python3 "$dir/ras.py" $kind "$dir/$kind.port" 2>"$dir/$kind.log" &
  servers+=($!)
  until_true test -s "$dir/$kind.port"
done
cohort object recv devices --rank 0 --world-size 2 --from 1 --timeout 20s >"$dir/devices.out" \
  2>"$dir/devices.err" &
devices=$!
until_true sh -c "'$cohort_binary' group list | grep -q devices"
expect 3 who-is-missing devices --nccl-ras=127.0.0.1:1
contains 'NCCL on this host says nothing: UNAVAILABLE: NCCL' "$out"
export NCCL_RAS_ADDR=$(cat "$dir/nccl.port")
for flag in '' --nccl-ras; do
  expect 3 who-is-missing $flag devices
  contains $'NCCL on this host says:\n  communicator 0x1a:0x2b, 2 ranks:\n    rank 1 (process 41' "$out"
  contains 'has launched 5 AllReduce, others 6' "$out"
done
expect 3 who-is-missing devices --json
contains '"nccl":{"version":"2.28.9"' "$out"
export NCCL_RAS_ADDR=$(cat "$dir/silent.port")
expect 3 who-is-missing devices
[[ $out != *NCCL* ]] || fail "NCCL is mentioned although it did not answer: $out"
expect 3 who-is-missing devices --nccl-ras
contains 'NCCL on this host says nothing: DEADLINE_EXCEEDED' "$out"
expect 2 who-is-missing devices --nccl-ras=somewhere
unset NCCL_RAS_ADDR
kill "${servers[@]}"
kill "$devices"
finished "$devices" 143 devices

# --- A TCPStore client of PyTorch waits for a key, without a group: a remark says where to look.
cat >"$dir/tcpstore.py" <<'PYTHON'
import socket, struct, sys
text = lambda key: struct.pack("<Q", len(key)) + key
with socket.create_connection(("127.0.0.1", int(sys.argv[1].rpartition(":")[2]))) as store:
    store.sendall(b"\0" + struct.pack("<I", 0x3C85F7CE) + b"\6" + struct.pack("<Q", 1) + text(b"late"))
    store.recv(1)
PYTHON
python3 "$dir/tcpstore.py" "$COHORT_COORDINATOR" &
servers=($!)
tenant=tcpstore-${COHORT_COORDINATOR##*:}
until_true sh -c "'$cohort_binary' waits --tenant $tenant | grep -q late"
expect 4 who-is-missing my-job
contains "clients of port ${tenant#*-} have 1 open wait: see 'cohort waits --tenant $tenant'" "$err"
kill "${servers[@]}"

# --- Objects: the sender may be gone before the object is read.
cohort object send mail --rank 0 --world-size 2 --to 1 --timeout 20s "$dir/binary" \
  >"$dir/send.out" 2>"$dir/send.err" &
sender=$!
cohort object recv mail --rank 1 --world-size 2 --from 0 --timeout 20s >"$dir/received" \
  2>"$dir/recv.err" || fail "object recv: $(cat "$dir/recv.err")"
cmp "$dir/received" "$dir/binary" || fail "object changed on its way"
finished "$sender" 0 send

echo one | cohort object gather parts --rank 1 --world-size 2 --root 0 --timeout 20s \
  >"$dir/g1.out" 2>"$dir/g1.err" &
gatherer=$!
echo zero | cohort object gather parts --rank 0 --world-size 2 --root 0 --timeout 20s \
  --output-dir "$dir/parts" 2>"$dir/g0.err" || fail "object gather: $(cat "$dir/g0.err")"
[[ $(cat "$dir/parts/rank-0" "$dir/parts/rank-1") == $'zero\none' ]] || fail "gathered objects"
finished "$gatherer" 0 g1

# --- A terminated member leaves, and the other gets the reason. (SIGINT is ignored by jobs of a script.)
"$cohort_binary" object recv broken --rank 1 --world-size 2 --from 0 --timeout 20s \
  >"$dir/victim.out" 2>"$dir/victim.err" &
victim=$!
cohort object recv broken --rank 0 --world-size 2 --from 1 --timeout 20s \
  >"$dir/other.out" 2>"$dir/other.err" &
other=$!
until_true sh -c "[ \$('$cohort_binary' waits broken | grep -c receive) = 2 ]"
expect 0 group show broken
contains active "$out"
# Probes: a wait that is old enough, one that is not, and a rank that is not to blame. For its first
# five seconds the coordinator does not know all waits.
until_true sh -c "'$cohort_binary' who-is-missing broken --older-than 1h"
until_true sh -c "! '$cohort_binary' who-is-missing broken --older-than 500ms"
expect 3 who-is-missing broken --older-than 500ms --probe
contains 'missing: rank 0;' "$out"
contains 'missing: rank 1;' "$out"
expect 0 who-is-missing broken --older-than 1h
contains 'open for 1h0m or longer' "$out"
expect 0 who-is-missing broken --rank 2
COHORT_RANK=1 expect 3 who-is-missing broken --rank self --older-than 500ms --probe
[[ $out != *'missing: rank 0;'* ]] || fail "rank 1 is blamed for rank 0: $out"
expect 4 who-is-missing no-such-group --older-than 1s
expect 0 who-is-missing no-such-group --older-than 1s --probe
contains 'there is no group no-such-group; the probe does not fail for this' "$err"
expect 5 who-is-missing broken --coordinator 127.0.0.1:1 --timeout 500ms --older-than 1s
expect 0 who-is-missing broken --coordinator 127.0.0.1:1 --timeout 500ms --older-than 1s --probe
# A watch ends its command when it is interrupted. The named pipe says that the command runs.
before=$(($(cohort group show broken | awk '$1 == "revision" { print $2 }') - 1))
mkfifo "$dir/started"
FILE="$dir/started" "$cohort_binary" group watch broken --from "$before" \
  --exec 'echo $$ >"$FILE"; sleep 1000' >"$dir/stop.out" 2>"$dir/stop.err" &
watch=$!
command_pid=$(timeout 10 cat "$dir/started")
kill "$watch"
finished "$watch" 143 stop
[[ -n $command_pid ]] || fail "no command of --exec: $(cat "$dir/stop.err")"
until_true sh -c "! kill -0 $command_pid"
# Another one runs its command at each event, also after a failure.
FILE="$dir/events" "$cohort_binary" group watch broken --from "$before" --exec \
  'echo "$COHORT_EVENT rank=$COHORT_RANK member=$COHORT_MEMBER group=$COHORT_GROUP" >>"$FILE"
   [ "$COHORT_EVENT" != left ] || exit 5' \
  >"$dir/exec.out" 2>"$dir/exec.err" &
watch=$!
until_true test -s "$dir/events"
kill "$victim"
finished "$victim" 143 victim
finished "$other" 6 other
contains 'rank-1' "$(cat "$dir/other.err")"
finished "$watch" 1 exec
contains 'left rank=1 member=rank-1 group=broken' "$(cat "$dir/events")"
contains ' (left): the command exited with 5; watching on' "$(cat "$dir/exec.err")"

# --- A reader that goes away.
(sleep 0.3; cohort server) | true
codes=("${PIPESTATUS[@]}")
[[ ${codes[0]} == 141 ]] || fail "closed pipe exited with ${codes[0]}"

# --- Drain.
expect 0 drain
expect 5 barrier late --rank 0 --world-size 1 --timeout 1500ms
contains "waiting for group late: the coordinator at $COHORT_COORDINATOR is draining" "$err"
expect 0 drain --resume
expect 0 barrier late --rank 0 --world-size 1 --timeout 10s

# --- An operator ends a wait: evicts the member, closes the group.
for action in evict close; do
  cohort barrier "to-$action" --rank 0 --world-size 2 --timeout 20s --json \
    >"$dir/$action.out" 2>"$dir/$action.err" &
  waiter=$!
  until_true sh -c "'$cohort_binary' waits 'to-$action' | grep -q join"
  if [[ $action == evict ]]; then
    expect 0 group evict to-evict rank-0 --reason 'by the test'
  else
    expect 0 group close to-close --reason 'by the test'
  fi
  finished "$waiter" 6 "$action"
  contains 'by the test' "$(cat "$dir/$action.err")"
  contains '"code":"ABORTED"' "$(cat "$dir/$action.out")"
done

if [[ $failures -gt 0 ]]; then
  echo "$failures failures; the coordinator said:"
  tail -50 "$dir/coordinator.log"
  exit 1
fi
echo "all passed"
