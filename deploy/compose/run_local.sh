#!/usr/bin/env bash
# Where no Docker engine runs: the services of docker-compose.yml as processes of this machine, each in a network
# namespace with the command, environment, volumes and health check that the file gives it. This is not Docker: there
# are no images, and what only containers have (users, capabilities, read-only roots) is left out.
#
#   deploy/compose/run_local.sh [--binaries FOLDER] [--without SERVICE]... [--file FILE]
#
# --binaries FOLDER   where the programs are; else they are built, or found in bazel-bin
# --without SERVICE   leaves services out, such as 'worker-*'
#
# Runs the service `tests` to its end, and exits as it did. 1: a service failed. 2: usage, or the file asks for what
# this cannot do. 77: this machine has no namespaces for us, or lacks a tool; the text says what.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PATH=$PATH:/usr/sbin:/sbin
command -v python3 > /dev/null || { echo "run_local: there is no python3" >&2; exit 77; }
exec python3 "$here/run_local.py" "$@"
