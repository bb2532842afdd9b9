#!/usr/bin/env bash
# Every program prints its name and the newest version of CHANGELOG.md, which the source has once.
#
#   version_test.sh CHANGELOG.md PROGRAM...
set -euo pipefail

changelog=$1
shift
root=$(dirname "$(readlink -f "$changelog")")
version=$(sed -n 's/^## \([0-9][0-9.]*\).*/\1/p' "$changelog" | head -n 1)
failures=0

expect() {
  if [[ $2 != "$3" ]]; then
    echo "$1: expected '$3', got '$2'" >&2
    failures=$((failures + 1))
  fi
}

for program in "$@"; do
  expect "$program --version" "$("$program" --version)" "$(basename "$program") $version"
done

pattern="[\" ]${version//./\\.}\""
places=$(cd "$root" && grep -rl "$pattern" --include='*.h' --include='*.cc' --exclude='*_test.cc' base client \
  coordinator worker || true)
expect "the places of the version" "$places" base/version.h
((failures == 0))
