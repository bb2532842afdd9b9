#!/usr/bin/env bash
# methods.md is what the program prints, and has a row for each method of the table.
#
#   docs/methods_test.sh PRINT_METHODS docs/methods.md
set -euo pipefail

if ! diff -u "$2" <("$1"); then
  echo "methods.md is stale: bazel run //docs:print_methods > docs/methods.md" >&2
  exit 1
fi
rows=$(grep -c '^| ' "$2")
echo "$rows rows"
((rows >= 60))
