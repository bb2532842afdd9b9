#!/usr/bin/env bash
# Puts programs into a folder together with the shared libraries that they need, but for glibc's own,
# which are the machine's: they start from there on any Linux whose glibc is not older.
#
#   deploy/collect_bundle.sh FOLDER PROGRAM...
#
# FOLDER/bin/NAME starts FOLDER/libexec/NAME with FOLDER/lib.
set -euo pipefail

[[ $# -ge 2 ]] || { sed -n '2,/^set -/p' "$0" | sed -e '/^set -/d' -e 's/^# \{0,1\}//' >&2; exit 2; }
folder=$1
shift
mkdir -p "$folder"/{bin,lib,libexec}

# The libraries that come with glibc and must have its version.
readonly OF_GLIBC='^(ld-linux.*|libc|libm|libdl|libpthread|librt|libresolv|libutil|libnss_.*)\.so'

for program in "$@"; do
  name=$(basename "$program")
  install -m 0755 "$program" "$folder/libexec/$name"
  strip "$folder/libexec/$name"
  while read -r library _ path _; do
    case $path in
      /*) ;;
      not)
        echo "collect_bundle: $name: $library is not found" >&2
        exit 1
        ;;
      *) continue ;;  # the kernel's, and the loader
    esac
    [[ $library =~ $OF_GLIBC || -e $folder/lib/$library ]] && continue
    install -m 0755 "$(realpath "$path")" "$folder/lib/$library"
    strip --strip-unneeded "$folder/lib/$library"
  done < <(ldd "$program")
  cat > "$folder/bin/$name" << 'START'
#!/bin/sh
here=$(dirname "$(dirname "$(readlink -f "$0")")")
LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
  exec "$here/libexec/$(basename "$0")" "$@"
START
  chmod 0755 "$folder/bin/$name"
done
