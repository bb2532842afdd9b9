#!/usr/bin/env bash
# No program or library of Cohort defines a function of the C library: in the process of an application
# it would take the place of the C library's.
#
#   libc_symbols_test.sh PROGRAM_OR_LIBRARY...
set -euo pipefail

functions_of() {
  nm --dynamic --defined-only "$1" | awk '$2 ~ /^[TWi]$/ {sub(/@.*/, "", $3); print $3}' | LC_ALL=C sort -u
}

# The file, and the libraries of Cohort that it loads.
with_libraries() {
  realpath "$1"
  ldd "$1" | awk '$2 == "=>" && $3 !~ /^\/(lib|usr)/ && $3 ~ /^\// {print $3}'
}

libc=$(ldd "$(command -v nm)" | awk '$1 == "libc.so.6" {print $3}')
of_libc=$(mktemp)
trap 'rm -f "$of_libc"' EXIT
functions_of "$libc" | grep -v '^_\(init\|fini\)$' > "$of_libc"
# Without a list of the library's functions, the check would find nothing.
grep -qx recvmsg "$of_libc"

failures=0
for file in "$@"; do
  while read -r part; do
    same=$(functions_of "$part" | LC_ALL=C comm -12 - "$of_libc")
    if [[ -n $same ]]; then
      echo "$part defines functions of the C library:" $same >&2
      failures=$((failures + 1))
    fi
  done < <(with_libraries "$file")
done
((failures == 0))
