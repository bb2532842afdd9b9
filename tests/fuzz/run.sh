#!/usr/bin/env bash
# Fuzzes each target for a while, from the corpus that is checked in.
#
#   tests/fuzz/run.sh [SECONDS [TARGET...]]
#
# SECONDS         for each target; default 60
# TARGET          request_fuzz, framed_rpc_fuzz, decode_fuzz, tcpstore_fuzz, record_codec_fuzz; of
#                 the data plane: attach_fuzz, connections_fuzz, call_fuzz, peer_fuzz, queue_fuzz;
#                 of messages: frame_fuzz, entries_fuzz; of clients without rights: tls_fuzz,
#                 token_fuzz, policy_fuzz, jwt_fuzz, names_fuzz, http2_guard_fuzz, field_count_fuzz;
#                 default: all
#
# Exits 0 when nothing was found. Otherwise the last lines name the inputs: put one into
# tests/fuzz/corpus (of the data plane: tests/fuzz/worker/corpus; of messages:
# tests/fuzz/parallel/corpus; of clients without rights: tests/fuzz/access/corpus) under a name that
# tells the fault, and corpus_test keeps it fixed.
#
# Findings and what the fuzzer learnt are kept in COHORT_FUZZ_OUTPUT (default: a new folder under
# /tmp), compiled results in COHORT_BAZEL_CACHE (default: ~/.cache/cohort-bazel).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
export HOME=${HOME:-/tmp}
readonly MAX_INPUT_BYTES=16384
readonly MAX_MEMORY_MB=2048
# An input that takes longer, in seconds, is a finding.
readonly MAX_INPUT_SECONDS=10

usage() {
  sed -n '2,/^set -/p' "${BASH_SOURCE[0]}" | sed -e '/^set -/d' -e 's/^# \{0,1\}//'
}

label() {
  case $1 in
    record_codec_fuzz) echo "//coordinator/journal:$1" ;;
    attach_fuzz | connections_fuzz | call_fuzz | peer_fuzz | queue_fuzz) echo "//tests/fuzz/worker:$1" ;;
    frame_fuzz | entries_fuzz) echo "//tests/fuzz/parallel:$1" ;;
    tls_fuzz | token_fuzz | policy_fuzz | jwt_fuzz | names_fuzz | http2_guard_fuzz | field_count_fuzz)
      echo "//tests/fuzz/access:$1"
      ;;
    *) echo "//tests/fuzz:$1" ;;
  esac
}

# Clang's probe gives another toolchain, so the build has an output base of its own: switching back
# and forth would throw the other configuration's analysis away.
build() {
  local labels=() target
  for target in "$@"; do labels+=("$(label "$target")"); done
  bazel --output_base="$output_base" build --config=fuzz "--disk_cache=$cache" \
    --color=no --curses=no --show_progress_rate_limit=60 --symlink_prefix=/ \
    -- "${labels[@]}" < /dev/null
  bin=$(bazel --output_base="$output_base" info --config=fuzz bazel-bin 2> /dev/null)
}

fuzz() {
  local target=$1 seconds=$2 name=${1%_fuzz}
  local path
  path=$bin/$(label "$target" | sed -e 's|^//||' -e 's|:|/|')
  local seeds=tests/fuzz/corpus/$name flags=()
  local of_coordinator=1 folder
  for folder in worker parallel access; do
    [[ $path == */tests/fuzz/$folder/* ]] || continue
    seeds=tests/fuzz/$folder/corpus/$name
    of_coordinator=
  done
  mkdir -p "$output/corpus/$name" "$output/findings"
  [[ -d $seeds ]] || seeds=
  [[ $target == record_codec_fuzz || -z $of_coordinator ]] || flags+=(-dict=tests/fuzz/cohort.dict)
  # The entropic schedule goes through all inputs for each feature of a run: with as many features as
  # a whole coordinator has, that is most of the time. So is looking up names of new functions.
  UBSAN_OPTIONS=print_stacktrace=1 "$path" -entropic=0 -print_funcs=0 \
    "-max_total_time=$seconds" "-max_len=$MAX_INPUT_BYTES" "-rss_limit_mb=$MAX_MEMORY_MB" \
    "-timeout=$MAX_INPUT_SECONDS" "-artifact_prefix=$output/findings/$target-" \
    -print_final_stats=1 ${flags[@]+"${flags[@]}"} \
    "$output/corpus/$name" ${seeds:+"$seeds"} > "$output/$target.log" 2>&1
}

main() {
  local seconds=60 targets=() target failed=0
  case ${1:-} in
    -h | --help) usage; return 0 ;;
  esac
  if [[ $# -gt 0 ]]; then
    [[ $1 =~ ^[0-9]+$ ]] || { usage >&2; return 2; }
    seconds=$1
    shift
  fi
  targets=("$@")
  [[ ${#targets[@]} -gt 0 ]] || targets=(request_fuzz framed_rpc_fuzz decode_fuzz tcpstore_fuzz record_codec_fuzz
    attach_fuzz connections_fuzz call_fuzz peer_fuzz queue_fuzz frame_fuzz entries_fuzz
    tls_fuzz token_fuzz policy_fuzz jwt_fuzz names_fuzz http2_guard_fuzz field_count_fuzz)

  cache=${COHORT_BAZEL_CACHE:-$HOME/.cache/cohort-bazel}
  output_base=${COHORT_FUZZ_OUTPUT_BASE:-$HOME/.cache/cohort-fuzz-build}
  output=${COHORT_FUZZ_OUTPUT:-$(mktemp -d /tmp/cohort-fuzz.XXXXXX)}
  mkdir -p "$cache" "$output" "$(dirname "$output_base")"
  build "${targets[@]}"

  for target in "${targets[@]}"; do
    if fuzz "$target" "$seconds"; then
      echo "$target: nothing found; $(grep -E '^stat::number_of_executed_units' "$output/$target.log" |
        awk '{print $2}') executions, $(grep -oE 'cov: [0-9]+' "$output/$target.log" | tail -n 1)"
    else
      failed=1
      echo "$target: see $output/$target.log"
      tail -n 40 "$output/$target.log"
    fi
  done
  if [[ $failed -ne 0 ]]; then
    echo "findings:"
    find "$output/findings" -type f
  fi
  return "$failed"
}

main "$@"
