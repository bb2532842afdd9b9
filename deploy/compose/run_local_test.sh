#!/usr/bin/env bash
# run_local.sh with the real programs: the services of docker-compose.yml; its errors; that it leaves nothing behind,
# also when it is stopped or killed.
#
#   run_local_test.sh RUN_LOCAL CERTIFICATES COORDINATOR WORKER COHORT HEALTH
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin

run_local=$1
certificates=$(realpath "$2")
shift 2
binaries=$TEST_TMPDIR/binaries
mkdir -p "$binaries" "$TEST_TMPDIR/folders"
for program in "$@"; do ln -s "$(realpath "$program")" "$binaries/"; done
# Folders of run_local.sh are made here, and its processes known by that name.
export TMPDIR=$TEST_TMPDIR/folders

fail() {
  echo "FAILED: $*" >&2
  cat "$TEST_TMPDIR/output" >&2
  exit 1
}

# local_run STATUS ARGUMENT...
local_run() {
  local want=$1 got=0
  shift
  "$run_local" --binaries "$binaries" "$@" > "$TEST_TMPDIR/output" 2>&1 < /dev/null || got=$?
  if [[ $got -eq 77 && $want -ne 77 ]]; then
    echo "SKIPPED: $(cat "$TEST_TMPDIR/output")"
    exit 0
  fi
  [[ $got -eq $want ]] || fail "$* exited with $got, not $want"
}

says() { grep -q -- "$1" "$TEST_TMPDIR/output" || fail "it does not say: $1"; }

remaining() { grep -lsz "^PATH=$TMPDIR/cohort-compose" /proc/[0-9]*/environ || true; }

nothing_remains() {
  local deadline=$((SECONDS + 20))
  until [[ -z $(remaining) ]]; do
    [[ $SECONDS -lt $deadline ]] || fail "$1 left processes behind: $(remaining)"
  done
}
nothing_left() {
  nothing_remains "$1"
  [[ -z $(ls "$TMPDIR") ]] || fail "$1 left folders behind: $(ls "$TMPDIR")"
}

# A compose file with certificates, a coordinator, and tests that run the script given.
write_file() {
  cat > "$TEST_TMPDIR/compose.yml" << YAML
services:
  certificates:
    entrypoint: [bash, /srv/cohort/certificates.sh, /run/cohort]
    command: ["coordinator=DNS:coordinator", "tests=URI:spiffe://test/tests"]
    volumes: ["$certificates:/srv/cohort/certificates.sh:ro", "certificates:/run/cohort"]
  coordinator:
    entrypoint: [cohort-coordinator]
    command:
      - --listen=[::]:7700
      - --tls-certificate=/run/cohort/coordinator/tls.crt
      - --tls-key=/run/cohort/coordinator/tls.key
      - --tls-client-ca=/run/cohort/coordinator/ca.crt
      - --metrics-listen
      - ""
    volumes: ["certificates:/run/cohort:ro"]
    depends_on: {certificates: {condition: service_completed_successfully}}
    healthcheck: {test: [CMD, cohort-health, "127.0.0.1:7700"], interval: 1s, timeout: 3s, start_period: 20s}
  tests:
    entrypoint: [bash, -c]
    command:
      - |
        ${1//$'\n'/$'\n'        }
    environment:
      NAME: "a value"
      COHORT_TLS_CA: /run/cohort/tests/ca.crt
      COHORT_TLS_CERTIFICATE: /run/cohort/tests/tls.crt
      COHORT_TLS_KEY: /run/cohort/tests/tls.key
    volumes: ["certificates:/run/cohort:ro"]
    depends_on: {coordinator: {condition: service_healthy}}
volumes: {certificates: {}}
YAML
}

# Starts it with tests that never end, and waits until they run.
start_endless() {
  write_file 'echo "the tests run"; exec cat <(sleep 1000)'
  "$run_local" --binaries "$binaries" --file "$TEST_TMPDIR/compose.yml" > "$TEST_TMPDIR/output" 2>&1 < /dev/null &
  started=$!
  local deadline=$((SECONDS + 30))
  until grep -q "the tests run" "$TEST_TMPDIR/output"; do
    [[ $SECONDS -lt $deadline ]] || fail "the tests do not run"
  done
}

local_run 0
cat "$TEST_TMPDIR/output"
says "worker-3 runs at"
says "this is not Docker"
says "passed: a checkpoint from rank 0 to all others"
says "passed: .*(remote)"
nothing_left "a run"

COHORT_FORM=local local_run 0 --without 'worker-*'
says "passed: .*(local)"

# shellcheck disable=SC2016
write_file '[[ $$NAME == "a value" && -z $${TEST_TMPDIR:-} ]] || exit 1
cohort server --coordinator coordinator:7700 || exit 1
exit 7'
local_run 7 --file "$TEST_TMPDIR/compose.yml"
nothing_left "failing tests"

write_file 'exit 0'
sed -i 's/--metrics-listen/--metric/' "$TEST_TMPDIR/compose.yml"
local_run 1 --file "$TEST_TMPDIR/compose.yml"
says "coordinator ended with status 2 before it was healthy"
says "coordinator | .*--metric\b"
nothing_left "a coordinator that does not start"

write_file 'exit 0'
sed -i 's/"coordinator=DNS:coordinator"/"coordinator=DNS"/' "$TEST_TMPDIR/compose.yml"
local_run 1 --file "$TEST_TMPDIR/compose.yml"
says "certificates ended with 1, and other services need its success"
nothing_left "certificates that cannot be made"

write_file 'exit 0'
sed -i 's/^    command/    ports: ["1:1"]\n    command/' "$TEST_TMPDIR/compose.yml"
local_run 2 --file "$TEST_TMPDIR/compose.yml"
says "unknown: ports"

start_endless
kill -TERM "$started"
status=0
wait "$started" || status=$?
[[ $status -eq 130 ]] || fail "after SIGTERM it exited with $status"
nothing_left "a run that was stopped"

start_endless
kill -KILL "$started"
wait "$started" 2> /dev/null || true
nothing_remains "a run that was killed"
echo "all passed"
