#!/usr/bin/env bash
# The glossary has 20 to 40 terms, in order, each with files that exist.
#
#   docs/glossary_test.sh docs/glossary.md
set -euo pipefail

page=$(readlink -f "$1")
root=$(dirname "$(dirname "$page")")
cd "$root"
failures=0
terms=0

complain() {
  echo "glossary.md: $*" >&2
  failures=$((failures + 1))
}

previous=
while IFS= read -r line; do
  [[ $line == "| "* && $line != "| term |"* ]] || continue
  terms=$((terms + 1))
  name=$(cut -d '|' -f 2 <<< "$line" | sed 's/^ *//; s/ *$//')
  mapfile -t files < <(grep -o '`[^`]*`' <<< "${line##* | }" | tr -d '`')
  [[ ${#files[@]} -gt 0 ]] || complain "$name: no file"
  for file in "${files[@]}"; do
    [[ -f $file ]] || complain "$name: $file does not exist"
  done
  [[ $(printf '%s\n%s\n' "$previous" "$name" | LC_ALL=C sort -f | head -n 1) == "$previous" ]] ||
    complain "$name stands after $previous"
  previous=$name
done < "$page"

echo "$terms terms, $failures failures"
((failures == 0 && terms >= 20 && terms <= 40))
