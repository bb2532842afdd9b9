#!/usr/bin/env bash
# Collects an image's root, and runs its programs in there, where they find nothing else.
#
#   runtime_test.sh COLLECT HEALTH COORDINATOR COHORT
set -euo pipefail

# Bazel's path has no programs of the system.
export PATH=$PATH:/usr/sbin:/sbin

collect=$1
shift
root=$TEST_TMPDIR/root
coordinator=

finish() { [[ -z $coordinator ]] || kill -KILL "$coordinator" 2> /dev/null || true; }
trap finish EXIT

"$collect" "$root" "$@"

inside=(chroot "$root")
[[ $(id -u) -eq 0 ]] || inside=(unshare --map-root-user chroot "$root")
if ! "${inside[@]}" /usr/local/bin/cohort --version > /dev/null 2> "$TEST_TMPDIR/error"; then
  if grep -q "chroot: cannot\|unshare: " "$TEST_TMPDIR/error"; then
    echo "SKIPPED: neither root nor a user namespace here: $(cat "$TEST_TMPDIR/error")"
    exit 0
  fi
  cat "$TEST_TMPDIR/error" >&2
  exit 1
fi
"${inside[@]}" /usr/local/bin/cohort-coordinator --check-config > /dev/null

# A Unix socket below the root, for which the sandbox has no say.
"${inside[@]}" /usr/local/bin/cohort-coordinator --listen unix:/run/socket --metrics-listen '' \
  --journal sqlite --journal-path /var/lib/cohort/journal.db --log-level warning &
coordinator=$!
"${inside[@]}" /usr/local/bin/cohort-health unix:/run/socket 20s
"${inside[@]}" /usr/local/bin/cohort server --coordinator unix:/run/socket
kill -TERM "$coordinator"
wait "$coordinator"
coordinator=
if "${inside[@]}" /usr/local/bin/cohort-health unix:/run/socket 200ms; then
  echo "cohort-health finds a server where none is" >&2
  exit 1
fi
[[ ! -e $root/bin/sh && ! -e $root/usr/bin ]]
echo "the root of the image: $(du -sh "$root" | cut -f 1)"
