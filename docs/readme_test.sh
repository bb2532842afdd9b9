#!/usr/bin/env bash
# README.md is at most 120 lines long, and its C++ is a part of a program that is built and tested.
#
#   docs/readme_test.sh README.md tests/examples/all_reduce.cc
set -euo pipefail

readme=$1
program=$2

lines=$(wc -l < "$readme")
if ((lines > 120)); then
  echo "README.md has $lines lines, at most 120 are allowed" >&2
  exit 1
fi

code=$(sed -n '/^```c++$/,/^```$/p' "$readme" | sed '1d;$d')
if [[ $code != *"AllReduce("* || $(cat "$program") != *"$code"* ]]; then
  echo "The C++ code of README.md is not in $program:" >&2
  echo "$code" >&2
  exit 1
fi
echo "$lines lines; the code is in $program"
