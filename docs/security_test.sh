#!/usr/bin/env bash
# The commands of security.md with certificates, and those with a token, run as they are printed. Only the name of the
# coordinator and its port are those of the test.
#
#   docs/security_test.sh COORDINATOR COHORT docs/security.md
set -euo pipefail

coordinator=$(readlink -f "$1")
cohort=$(readlink -f "$2")
page=$(readlink -f "$3")
cd "$(mktemp -d -p "${TEST_TMPDIR:-/tmp}")"
running=
trap '[[ -z $running ]] || kill "$running"' EXIT

cohort-coordinator() {
  rm -f ports
  "$coordinator" "$@" --metrics-listen '' --port-file ports --log-level warning &
  running=$!
  for _ in {1..600}; do
    [[ -s ports ]] && break
    kill -0 "$running"
    sleep 0.05
  done
  COHORT_COORDINATOR=localhost:$(sed -n '1s/.*://p' ports)
  export COHORT_COORDINATOR
}

# The first block of commands below a heading.
commands_below() {
  awk -v heading="$1" '$0 == heading {here = 1} here && /^```/ {if (inside) exit; inside = 1; next} inside' "$page" |
    sed -e 's/\[::\]:7700/localhost:0/' -e 's/DNS:coordinator/DNS:localhost/'
}

run_below() {
  commands_below "$1" > commands
  [[ -s commands ]]
  # shellcheck disable=SC1091
  source ./commands 2> openssl.log || { cat openssl.log >&2; exit 1; }
}

run_below '## Set-up with static files'
"$cohort" can-i Join --tenant team-a --timeout 5s
if "$cohort" can-i Join --tenant team-b --timeout 5s; then exit 1; fi
kill "$running"
wait "$running"

run_below '### Bearer tokens'
"$cohort" can-i Join --tenant team-a --timeout 5s
unset COHORT_TLS_CERTIFICATE COHORT_TLS_KEY
"$cohort" can-i Join --tenant team-a --timeout 5s
unset COHORT_TOKEN_FILE
if "$cohort" can-i Join --tenant team-a --timeout 5s; then exit 1; fi
