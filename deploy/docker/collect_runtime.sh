#!/usr/bin/env bash
# Puts programs into a folder together with the shared libraries that they need, and with what glibc
# wants to find: the root of an image that holds nothing else.
#
#   deploy/docker/collect_runtime.sh FOLDER PROGRAM...
set -euo pipefail

[[ $# -ge 2 ]] || { sed -n '2,/^set -/p' "$0" | sed -e '/^set -/d' -e 's/^# \{0,1\}//' >&2; exit 2; }
root=$1
shift

# Debian's layout: /lib and /lib64 are links into /usr.
mkdir -p "$root"/{etc,proc,sys,tmp,run/cohort,usr/lib,usr/lib64,usr/local/bin,var/lib/cohort}
for name in lib lib64; do
  [[ -L $root/$name ]] || ln -s "usr/$name" "$root/$name"
done
# A daemon of any user makes its socket in run/cohort.
chmod 1777 "$root"/{tmp,run/cohort}

libraries() {
  local line
  ldd "$1" | while read -r line; do
    [[ $line != *"not found"* ]] || { echo "collect_runtime: $1: $line" >&2; return 1; }
    # "NAME => PATH (ADDRESS)", or "PATH (ADDRESS)" of the loader.
    line=${line##*=> }
    [[ $line == /* ]] && echo "${line%% *}"
  done
}

for program in "$@"; do
  install -m 0755 "$program" "$root/usr/local/bin/"
  wanted=$(libraries "$program")
  for library in $wanted; do
    # By the name under which it is looked for, in the folder without links.
    target=$(realpath "$(dirname "$library")")/$(basename "$library")
    install -D -m 0755 "$(realpath "$library")" "$root$target"
  done
done

printf 'cohort:x:65532:65532:cohort:/nonexistent:/nonexistent\n' > "$root/etc/passwd"
printf 'cohort:x:65532:\n' > "$root/etc/group"
printf 'hosts: files dns\n' > "$root/etc/nsswitch.conf"
