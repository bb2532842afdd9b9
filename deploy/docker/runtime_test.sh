#!/usr/bin/env bash
# Collects an image's root, and runs its programs in there, where they find nothing else.
#
#   runtime_test.sh COLLECT HEALTH COORDINATOR WORKER COHORT
set -euo pipefail

# Bazel's path has no programs of the system.
export PATH=$PATH:/usr/sbin:/sbin

collect=$1
shift
root=$TEST_TMPDIR/root
running=()

finish() { [[ ${#running[@]} -eq 0 ]] || kill -KILL "${running[@]}" 2> /dev/null || true; }
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
# Unix sockets below the root, in which a sandbox has no say.
"${inside[@]}" /usr/local/bin/cohort-coordinator --listen unix:/run/cohort/coordinator.sock --metrics-listen '' \
  --journal sqlite --journal-path /var/lib/cohort/journal.db --log-level warning &
running+=($!)
"${inside[@]}" /usr/local/bin/cohort-worker --listen unix:/run/cohort/worker.sock --metrics-listen '' \
  --coordinator unix:/run/cohort/coordinator.sock --log-level warning &
running+=($!)
"${inside[@]}" /usr/local/bin/cohort-health unix:/run/cohort/coordinator.sock 20s
"${inside[@]}" /usr/local/bin/cohort-health unix:/run/cohort/worker.sock 20s
"${inside[@]}" /usr/local/bin/cohort perf all_reduce --sizes 64K --group image \
  --coordinator unix:/run/cohort/coordinator.sock --worker unix:/run/cohort/worker.sock \
  --rank 0 --world-size 1 --form remote --iterations 1
for process in "${running[@]}"; do
  kill -TERM "$process"
  wait "$process"
done
running=()
if "${inside[@]}" /usr/local/bin/cohort-health unix:/run/cohort/worker.sock 200ms; then
  echo "cohort-health finds a server where none is" >&2
  exit 1
fi
[[ $(stat -c %a "$root/run/cohort") -eq 1777 ]]
[[ ! -e $root/bin/sh && ! -e $root/usr/bin ]]
echo "the root of the image: $(du -sh "$root" | cut -f 1)"
