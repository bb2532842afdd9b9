#!/usr/bin/env bash
# Builds the programs of Cohort and puts them into a folder with the libraries that they need, to be
# carried to another machine.
#
#   deploy/bundle.sh FOLDER              coordinator, worker and command line
#   deploy/bundle.sh --gpu-tests FOLDER  the tests that want a GPU (tests/gpu/run.sh FOLDER), the
#                                        benchmark (tests/benchmark/run.sh gpu --bundle FOLDER),
#                                        and the Python package as a wheel, which both use
#
# BAZEL (default "bazel") may carry start-up options. BUNDLE_BUILD_OPTIONS is passed to `build`.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
usage() { sed -n '2,/^set -/p' "${BASH_SOURCE[0]}" | sed -e '/^set -/d' -e 's/^# \{0,1\}//' >&2; exit 2; }

options=()
targets=(//coordinator:cohort-coordinator //worker/daemon:cohort-worker //worker/cli:cohort)
if [[ ${1:-} == --gpu-tests ]]; then
  shift
  targets=(//worker/cuda:runtime_test //worker/communicator/nccl:nccl_gpu_test
    //tests/gpu:ranks_gpu_test //worker/group/testing/rank_program:rank_program
    //coordinator:cohort-coordinator //tests/benchmark/gpu:gpu_benchmark)
  # Many programs: each library once.
  options=(--define system_libraries=shared)
fi
[[ $# -eq 1 && $1 != -* ]] || usage
mkdir -p "$1"
folder=$(cd "$1" && pwd)

cd "$root"
# shellcheck disable=SC2086  # several options
${BAZEL:-bazel} build --config=quickstart "${options[@]}" ${BUNDLE_BUILD_OPTIONS:-} "${targets[@]}" >&2
bin=$(${BAZEL:-bazel} info --config=quickstart "${options[@]}" bazel-bin 2> /dev/null)
programs=()
for target in "${targets[@]}"; do
  path=${target#//}
  programs+=("$bin/${path/:/\/}")
done
deploy/collect_bundle.sh "$folder" "${programs[@]}"
[[ ${#options[@]} == 0 ]] || deploy/wheel.sh "$folder/wheel"
echo "$(du -sm "$folder" | cut -f 1) MiB in $folder" >&2
