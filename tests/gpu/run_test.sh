#!/usr/bin/env bash
# The output of run.sh for a bundle, without a GPU: its tests are small scripts here.
# shellcheck disable=SC2016  # what small scripts expand
set -euo pipefail

run=$1
folder=$(mktemp -d "${TEST_TMPDIR:-/tmp}/run.XXXXXX")
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder"/{bundle/bin,bundle/libexec,tools}

problem() {
  echo "$*"
  [[ ! -e $folder/said ]] || cat "$folder/said"
  exit 1
}
# put PATH LINE...: a script.
put() {
  local path=$1
  shift
  printf '%s\n' '#!/bin/sh' "$@" > "$path"
  chmod +x "$path"
}
# expect STATUS [ARGUMENT...]: runs run.sh and checks its exit status; its output is in $folder/said.
expect() {
  local expected=$1 status=0
  shift
  env -i PATH="$folder/tools:/usr/bin:/bin" TMPDIR="$folder" CUDA_HOME="$folder/none" \
    COHORT_GPU_NODE="${node:-$folder}" "$run" "$@" > "$folder/said" 2>&1 || status=$?
  ((status == expected)) || problem "exit status $status, not $expected"
}
says() { grep -qF -- "$1" "$folder/said" || problem "it does not say: $1"; }

node=/nonexistent expect 3 "$folder/bundle"
says "no GPU here"

put "$folder/bundle/bin/good_test" 'echo "[  PASSED  ] 3 tests."' 'test -d "$COHORT_TEST_PROGRAMS"'
expect 0 "$folder/bundle"
says "1 passed, 0 failed"
[[ -x /usr/local/cuda/bin/compute-sanitizer ]] || says "compute-sanitizer: not found here"

[[ -x /usr/local/cuda/bin/compute-sanitizer ]] || expect 3 --only sanitizer "$folder/bundle"

put "$folder/bundle/bin/bad_test" 'exit 4'
expect 1 "$folder/bundle"
says "bad_test: exit status 4"
says "1 passed, 1 failed"
expect 0 --only good_test "$folder/bundle"
says "1 passed, 0 failed"

put "$folder/bundle/bin/bad_test" 'echo "[  PASSED  ] 0 tests."'
expect 1 "$folder/bundle"
says "bad_test: nothing of it ran"
rm "$folder/bundle/bin/bad_test"

put "$folder/bundle/libexec/runtime_test" 'echo "it ran"'
# The last argument is the program.
put "$folder/tools/compute-sanitizer" 'for program; do :; done' '"$program"' \
  'echo "========= ERROR SUMMARY: 0 errors"'
expect 0 "$folder/bundle"
says "ERROR SUMMARY: 0 errors"
says "2 passed, 0 failed"
put "$folder/tools/compute-sanitizer" 'echo "========= Invalid __global__ write"' 'exit 77'
expect 1 "$folder/bundle"
says "Invalid __global__ write"
says "compute-sanitizer has found errors"
put "$folder/tools/compute-sanitizer" 'echo "Error: Device not supported"' 'exit 1'
expect 0 "$folder/bundle"
says "does not work on this machine"
