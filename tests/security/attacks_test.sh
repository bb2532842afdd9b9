#!/usr/bin/env bash
# Each attack of README.md names a test that exists, and there are at least 30.
#
#   tests/security/attacks_test.sh tests/security/README.md
set -euo pipefail

page=$(readlink -f "$1")
root=$(dirname "$(dirname "$(dirname "$page")")")
attacks=0
failures=0

complain() {
  echo "README.md: $*" >&2
  failures=$((failures + 1))
}

# The third cell of each row of three cells: `path: Test, Test`.
while IFS= read -r reference; do
  attacks=$((attacks + 1))
  path=${reference%%: *}
  if [[ ! -f $root/$path ]]; then
    complain "no file $path"
    continue
  fi
  for name in $(tr -d ',' <<< "${reference#*: }"); do
    grep -qE "^TEST(_F|_P)?\(\w+, $name\)" "$root/$path" || complain "$path has no test $name"
  done
done < <(grep -oP '^\|[^|]+\|[^|]+\| `\K[^`]*(?=` \|$)' "$page")

echo "$attacks attacks, $failures failures"
((attacks >= 30 && failures == 0))
