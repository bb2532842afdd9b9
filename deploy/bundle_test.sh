#!/usr/bin/env bash
# A bundle of the programs: each starts from it alone, and none of its libraries is the machine's,
# but for glibc's.
set -euo pipefail

collect=$1
shift
folder=$(mktemp -d "${TEST_TMPDIR:-/tmp}/bundle.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"$collect" "$folder/made" "$@"
# It works wherever it is.
mv "$folder/made" "$folder/carried"
bundle=$folder/carried

for program in "$@"; do
  name=$(basename "$program")
  env -i PATH=/usr/bin:/bin "$bundle/bin/$name" --version > "$folder/version"
  grep -q '[0-9]' "$folder/version" || { echo "$name --version says nothing"; exit 1; }
  foreign=$(env -i LD_LIBRARY_PATH="$bundle/lib" ldd "$bundle/libexec/$name" | grep '=> /' |
    grep -v "=> $bundle/" | grep -vE '^\s*lib(c|m|dl|pthread|rt|resolv)\.so' || true)
  [[ -z $foreign ]] || { echo "$name takes from the machine: $foreign"; exit 1; }
done
size=$(du -sm "$bundle" | cut -f 1)
((size < 60)) || { echo "$size MiB"; exit 1; }
if "$collect" "$folder/none" /nonexistent 2> /dev/null; then
  echo "a missing program was put into a bundle"
  exit 1
fi
