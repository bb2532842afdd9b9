#!/usr/bin/env bash
# The glossary has at most 40 terms, in order, each with a file. Each old word still occurs in its
# files: the row of a word that has left the code must go.
#
#   docs/glossary_test.sh docs/glossary.md
set -euo pipefail

page=$(readlink -f "$1")
root=$(dirname "$(dirname "$page")")
cd "$root"
failures=0
terms=0
old_words=0
table=

complain() {
  echo "glossary.md: $*" >&2
  failures=$((failures + 1))
}

previous=
while IFS= read -r line; do
  case $line in
    "| term |"*) table=terms ;;
    "| old word |"*) table=old ;;
    "| "*)
      name=$(cut -d '|' -f 2 <<< "$line" | sed 's/^ *//; s/ *$//')
      mapfile -t files < <(grep -o '`[^`]*`' <<< "${line##* | }" | tr -d '`')
      [[ ${#files[@]} -gt 0 ]] || complain "$name: no file"
      [[ $table != terms ]] || terms=$((terms + 1))
      if [[ $table == old ]]; then
        old_words=$((old_words + 1))
        # Words after a comma name the meaning: "lane, in sends".
        words=$(sed -E 's/, (in|at|of) .*//; s/, /\n/g' <<< "$name")
        while IFS= read -r word; do
          # "hand over" is hand_over or HandOver there.
          grep -qiE "${word/ /_?}" "${files[@]}" || complain "$word is no longer in ${files[*]}"
        done <<< "$words"
      elif [[ $(printf '%s\n%s\n' "$previous" "$name" | LC_ALL=C sort | head -n 1) != "$previous" ]]; then
        complain "$name stands after $previous"
      fi
      previous=$name
      ;;
  esac
done < "$page"

((terms <= 40)) || complain "$terms terms, at most 40 are allowed"
echo "$terms terms, $old_words old words, $failures failures"
((failures == 0 && terms >= 20))
