#!/usr/bin/env bash
# Runs the tests that want a GPU, from a bundle of them. The last line says "N passed, N failed".
#
#   tests/gpu/run.sh           makes the bundle first (deploy/bundle.sh --gpu-tests)
#   tests/gpu/run.sh BUNDLE    on a machine that has no compiler
#
# Without a GPU it says so and exits with 3.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# What hangs on a device must not hang the machine.
readonly LIMIT=240

case ${1:-} in
  -h | --help)
    sed -n '2,/^set -/p' "${BASH_SOURCE[0]}" | sed -e '/^set -/d' -e 's/^# \{0,1\}//'
    exit 0
    ;;
esac
if [[ ! -e /dev/nvidiactl ]]; then
  echo "no GPU here (there is no /dev/nvidiactl)"
  exit 3
fi
bundle=${1:-}
if [[ -z $bundle ]]; then
  bundle=$(mktemp -d "${TMPDIR:-/tmp}/cohort-gpu-tests.XXXXXX")
  trap 'rm -rf "$bundle"' EXIT
  "$root/deploy/bundle.sh" --gpu-tests "$bundle"
fi

# One rank on each GPU and all traffic inside the machine.
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-lo}
export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
passed=0
failed=0
for test in "$bundle"/bin/*_test; do
  name=$(basename "$test")
  echo "== $name"
  status=0
  timeout --kill-after=10 "$LIMIT" "$test" || status=$?
  if ((status == 0)); then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "$name: exit status $status"
  fi
done
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))
