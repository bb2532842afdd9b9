#!/usr/bin/env bash
# Every row of parity.md names files that exist and tests that are in them; no cell is empty.
#
#   docs/parity_test.sh docs/parity.md
set -euo pipefail

page=$(readlink -f "$1")
root=$(dirname "$(dirname "$page")")
failures=0
rows=0
planned=0

complain() {
  echo "parity.md: $*" >&2
  failures=$((failures + 1))
}

# `path` or `path: Test, Test`, between back-quotes.
check_reference() {
  local path=${1%%: *} tests=""
  [[ $1 == *": "* ]] && tests=${1#*: }
  if [[ ! -f $root/$path ]]; then
    complain "no file $path"
    return
  fi
  local name
  for name in ${tests//,/ }; do
    grep -q "$name" "$root/$path" || complain "$path has no $name"
  done
}

while IFS= read -r line; do
  [[ $line == "| "* ]] || continue
  [[ $line == "| There"* || $line == "| Trap"* ]] && continue
  rows=$((rows + 1))
  [[ $line != *"|  |"* && $line != *"| |"* ]] || complain "an empty cell: $line"
  # A planned row says so and names no file; every other row names one.
  if [[ $line == *"| planned |"* ]]; then
    planned=$((planned + 1))
    [[ $line != *.h* && $line != *.cc* ]] || complain "planned, and names a file: $line"
    continue
  fi
  references=0
  while IFS= read -r reference; do
    [[ $reference == */* ]] || continue
    references=$((references + 1))
    check_reference "$reference"
  done < <(grep -o '`[^`]*`' <<< "$line" | tr -d '`')
  [[ $references -gt 0 ]] || complain "no file: $line"
done < "$page"

[[ $rows -ge 150 ]] || complain "only $rows rows"
for trap in $(seq 1 56); do
  grep -q "^| T$trap |" "$page" || complain "no row for T$trap"
done
echo "$rows rows, $planned of them planned, $failures failures"
((failures == 0))
