#!/usr/bin/env bash
# Every path of this tree that the documents name exists, and so does the target of every link.
#
#   docs/paths_test.sh README.md
#
# A path begins with a folder of the first level: worker/group/membership/rank_membership.h. It may
# also name a folder, a file without its ending (worker/group/membership/rank_membership), or several
# files (worker/daemon/methods/*_methods.cc).
set -euo pipefail

root=$(dirname "$(readlink -f "$1")")
cd "$root"
mapfile -t pages < <(find . -name '*.md' -not -path './.*' | sort)
failures=0
paths=0

complain() {
  echo "$*" >&2
  failures=$((failures + 1))
}

# Succeeds if the path, or a file that continues it with an ending, exists.
exists() {
  [[ -e $1 ]] || compgen -G "$1" > /dev/null || compgen -G "${1%.}.*" > /dev/null
}

for page in "${pages[@]}"; do
  while IFS=: read -r line path; do
    paths=$((paths + 1))
    path=${path%%[.,:]}
    exists "$path" || complain "$page:$line: no $path"
  done < <(grep -anoP '(?<![\w./:@*-])(?:\.ci|base|client|coordinator|deploy|docs|proto|tests|third_party|worker)/[\w./*-]*' \
    "$page")
  while IFS=: read -r line target; do
    [[ $target != *://* ]] || continue
    paths=$((paths + 1))
    [[ -e $(dirname "$page")/${target%%#*} ]] || complain "$page:$line: link to $target, which does not exist"
  done < <(grep -anoP '\]\(\K[^)#\s][^)\s]*(?=\))' "$page")
done

echo "${#pages[@]} pages, $paths paths, $failures failures"
[[ $paths -ge 100 ]] && ((failures == 0))
