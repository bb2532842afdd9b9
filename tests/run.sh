#!/usr/bin/env bash
# Installs missing packages, builds, and runs the tests. The last line says "N passed, N failed", in
# test targets. Exits 0 only if some ran and all passed.
#
#   tests/run.sh [--config NAME] [--tags FILTER] [--no-unit-tests] [--jobs N] [TARGET...]
#
# --config NAME     a configuration of .bazelrc: opt, asan, ubsan, tsan; builds the tests alone
# --tags FILTER     as Bazel's --test_tag_filters: "process,-slow"
# --no-unit-tests   neither builds nor runs tests that are fit for sanitizers; all else, as //...
# --jobs N          how many actions at once
# TARGET            //... when none is given
#
# COHORT_WITHOUT_TORCH=1 skips the tests that need PyTorch.
# COHORT_WITHOUT_GPU=1 leaves GPU code and its tests out; without it, a missing CUDA toolkit is a failure.
# Compiled results are kept in COHORT_BAZEL_CACHE (default: ~/.cache/cohort-bazel); delete it at will.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
export HOME=${HOME:-/tmp}
cache=${COHORT_BAZEL_CACHE:-$HOME/.cache/cohort-bazel}

# These need a machine or a moment of their own.
readonly NOT_HERE=-manual,-gpu,-benchmark,-fuzz
readonly UNIT_TESTS='tests(//...) except attr(tags, "\b(process|nosan)\b", //...)'

usage() {
  sed -n '2,/^set -/p' "${BASH_SOURCE[0]}" | sed -e '/^set -/d' -e 's/^# \{0,1\}//'
}

finish() {
  local passed=$1 failed=$2
  echo "$passed passed, $failed failed"
  [[ $failed -eq 0 && $passed -gt 0 ]]
}

# Prints "passed failed" from Bazel's build event file.
count() {
  python3 - "$1" << 'PYTHON'
import json
import sys

passed = failed = 0
with open(sys.argv[1], encoding="utf-8") as events:
    for line in events:
        summary = json.loads(line).get("testSummary")
        if summary is None:
            continue
        if summary.get("overallStatus") in ("PASSED", "FLAKY"):
            passed += 1
        else:
            failed += 1
print(passed, failed)
PYTHON
}

main() {
  local flags=() targets=() tags=$NOT_HERE unit_tests=true
  while [[ $# -gt 0 ]]; do
    case $1 in
      --config | --tags | --jobs)
        [[ $# -ge 2 ]] || { usage >&2; finish 0 1; return; }
        case $1 in
          --config) flags+=("--config=$2" --build_tests_only) ;;
          --tags) tags=$2,$NOT_HERE ;;
          --jobs) flags+=("--jobs=$2") ;;
        esac
        shift
        ;;
      --no-unit-tests) unit_tests=false ;;
      -h | --help)
        usage
        return 0
        ;;
      --) ;;
      -*)
        usage >&2
        finish 0 1
        return
        ;;
      *) targets+=("$1") ;;
    esac
    shift
  done
  deploy/bootstrap.sh --torch || { finish 0 1; return; }
  [[ ${#targets[@]} -gt 0 ]] || targets=(//...)
  local others=()
  $unit_tests || mapfile -t others < <(bazel query --noshow_progress "$UNIT_TESTS")
  mkdir -p "$cache"
  events=$(mktemp)
  trap 'rm -f "$events"' EXIT

  local status=0
  bazel test "--disk_cache=$cache" "--build_event_json_file=$events" \
    "--test_tag_filters=$tags" "--build_tag_filters=$NOT_HERE" \
    "--test_env=COHORT_TORCH=${COHORT_TORCH:-$HOME/.cache/cohort-torch}" \
    --color=no --curses=no --show_progress_rate_limit=60 \
    ${flags[@]+"${flags[@]}"} -- "${targets[@]}" ${others[@]+"${others[@]/#/-}"} < /dev/null || status=$?

  # 0: all passed. 3: built, and some failed. Otherwise nothing can be said about the tests.
  if [[ $status -ne 0 && $status -ne 3 ]]; then
    finish 0 1
    return
  fi
  local passed failed
  read -r passed failed < <(count "$events")
  if [[ $passed -eq 0 || ($status -eq 3 && $failed -eq 0) ]]; then
    failed=$((failed > 0 ? failed : 1))
  fi
  finish "$passed" "$failed"
}

main "$@"
