#!/usr/bin/env bash
# Runs the tests that want a GPU, from a bundle of them: those of C++, those of one process once more
# under compute-sanitizer, where there is one, and those of the Python package, where a python3 has
# PyTorch. The last line says "N passed, N failed".
#
#   tests/gpu/run.sh                      makes the bundle first (deploy/bundle.sh --gpu-tests)
#   tests/gpu/run.sh BUNDLE               on a machine that has no compiler
#   tests/gpu/run.sh --only NAME BUNDLE   one of the tests: ranks_gpu_test, sanitizer, python, ...
#
# Without a GPU, or where there is nothing to run, it says so and exits with 3. COHORT_NCCL_LIBRARY
# names another NCCL than the one that is found.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# A hang on a device must not hang the machine. In seconds; the ranks' processes have limits of
# their own within.
readonly LIMIT=240
readonly RANKS_LIMIT=420
# By it compute-sanitizer says that it has found something.
readonly FOUND=77

only=""
if [[ ${1:-} == --only ]]; then
  only=${2:?--only NAME}
  shift 2
fi
case ${1:-} in
  -*)
    sed -n '2,/^set -/p' "${BASH_SOURCE[0]}" | sed -e '/^set -/d' -e 's/^# \{0,1\}//'
    exit 0
    ;;
esac
device_node=${COHORT_GPU_NODE:-/dev/nvidiactl}
if [[ ! -e $device_node ]]; then
  echo "no GPU here (there is no $device_node)"
  exit 3
fi
bundle=${1:-}
if [[ -z $bundle ]]; then
  bundle=$(mktemp -d "${TMPDIR:-/tmp}/cohort-gpu-tests.XXXXXX")
  trap 'rm -rf "$bundle"' EXIT
  "$root/deploy/bundle.sh" --gpu-tests "$bundle"
fi
bundle=$(cd "$bundle" && pwd)

# All traffic stays inside the machine.
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-lo}
export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
# Where tests of several processes find the others.
export COHORT_TEST_PROGRAMS=$bundle/bin
# shellcheck source=tests/gpu/find_nccl.sh
. "$root/tests/gpu/find_nccl.sh"
find_nccl

passed=0
failed=0
scratch=$(mktemp -d "${TMPDIR:-/tmp}/cohort-gpu-scratch.XXXXXX")
trap 'rm -rf "$scratch"; [[ -n ${1:-} ]] || rm -rf "$bundle"' EXIT
output=$scratch/output
# The folder for the files of tests.
export TEST_TMPDIR=$scratch

succeed() { passed=$((passed + 1)); }
fail() {
  failed=$((failed + 1))
  echo "$*"
}
wanted() { [[ -z $only || $only == "$1" ]]; }

# A test in which nothing ran has not passed: there is a GPU.
run_test() {
  local name=$1 status=0 limit=$LIMIT
  [[ $name != ranks_* ]] || limit=$RANKS_LIMIT
  echo "== $name"
  timeout --kill-after=10 "$limit" "$bundle/bin/$name" 2>&1 | tee "$output" || status=$?
  if ((status != 0)); then
    fail "$name: exit status $status$( ((status == 124 || status == 137)) && echo ", after $limit s")"
  elif grep -q '^\[  PASSED  \] 0 tests' "$output"; then
    fail "$name: nothing of it ran"
  else
    succeed
  fi
}

# Tests of one process each, which compute-sanitizer can look into.
readonly IN_PROCESS="runtime_test nccl_gpu_test"

run_sanitizer() {
  local sanitizer name status
  sanitizer=$(command -v compute-sanitizer || true)
  for folder in "${CUDA_HOME:-/usr/local/cuda}" /usr/local/cuda; do
    [[ -n $sanitizer || ! -x $folder/bin/compute-sanitizer ]] || sanitizer=$folder/bin/compute-sanitizer
  done
  if [[ -z $sanitizer ]]; then
    echo "compute-sanitizer: not found here, so memory errors on the device were not looked for"
    return
  fi
  for name in $IN_PROCESS; do
    [[ -x $bundle/libexec/$name ]] || continue
    echo "== $name under compute-sanitizer"
    status=0
    # Tests make CUDA's functions fail on purpose; only accesses of kernels and copies count.
    LD_LIBRARY_PATH="$bundle/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
      timeout --kill-after=10 "$LIMIT" "$sanitizer" --tool memcheck --report-api-errors no \
      --error-exitcode "$FOUND" "$bundle/libexec/$name" > "$output" 2>&1 || status=$?
    grep '^========= ' "$output" | head -n 40 || true
    if grep -qi 'device not supported\|failed to initialize' "$output"; then
      echo "compute-sanitizer: does not work on this machine, so memory errors were not looked for"
      return
    elif ((status == FOUND)); then
      fail "$name: compute-sanitizer has found errors"
    elif ((status != 0)); then
      tail -n 20 "$output"
      fail "$name: under compute-sanitizer: exit status $status"
    else
      succeed
    fi
  done
}

run_python() {
  local wheel
  for wheel in "$bundle"/wheel/cohort-*.whl; do
    [[ -e $wheel ]] || return 0
    if ! python3 -c 'import pytest, torch, sys; sys.exit(not torch.cuda.is_available())' 2> /dev/null; then
      echo "python: no python3 with pytest and a PyTorch for GPUs here, so the package was not tested"
      return
    fi
    python3 -m zipfile -e "$wheel" "$scratch/package"
    for test in "$root"/tests/gpu/python/*_test.py; do
      echo "== $(basename "$test")"
      local status=0
      PYTHONPATH=$scratch/package:$root/client/python PATH=$bundle/bin:$PATH \
        timeout --kill-after=10 "$LIMIT" python3 -m pytest -q -rs -p no:cacheprovider \
        --import-mode=importlib "$test" 2>&1 | tee "$output" || status=$?
      if ((status != 0)); then
        fail "$(basename "$test"): exit status $status"
      elif ! grep -q ' passed' "$output"; then
        fail "$(basename "$test"): nothing of it ran"
      else
        succeed
      fi
    done
  done
}

for test in "$bundle"/bin/*_test; do
  name=$(basename "$test")
  ! wanted "$name" || run_test "$name"
done
! wanted python || run_python
! wanted sanitizer || run_sanitizer
echo "$passed passed, $failed failed"
if ((passed + failed == 0)); then
  echo "nothing was run"
  exit 3
fi
((failed == 0))
