#!/usr/bin/env bash
# Builds and runs the benchmarks: Cohort and the peer systems in one run, interleaved, on this machine.
#
#   tests/benchmark/run.sh rendezvous            the coordinator and its peer systems, as a table
#   tests/benchmark/run.sh rendezvous --json     the same, one JSON object per line
#   tests/benchmark/run.sh rendezvous --quick    a few minutes less, more noise
#   tests/benchmark/run.sh rendezvous --operation barrier --members 8 --members 256
#   tests/benchmark/run.sh rendezvous-tls [--json]   the coordinator with plain text and with mutual TLS
#   tests/benchmark/run.sh peer-systems          the peer systems alone
#   tests/benchmark/run.sh flood [--json]        how much a tenant that floods the coordinator slows the others
#   tests/benchmark/run.sh guarantees [--json]   a million barriers, cost of a parked call, ...
#   tests/benchmark/run.sh collective [--json]   collectives on host memory: Cohort, Open MPI, Gloo
#   tests/benchmark/run.sh collective --members 4 --operation all_reduce --sizes 64K 1M
#   tests/benchmark/run.sh collective --separate-hosts   over sockets between two namespaces, plain and with mutual TLS
#   tests/benchmark/run.sh collective --background   call by call, with a background load and with another group
#   tests/benchmark/run.sh python [--json]       numpy and PyTorch: Cohort, torch.distributed over Gloo, and Cohort from C++
#   tests/benchmark/run.sh python --members 4 --sizes 8 1M
#   tests/benchmark/run.sh stateless [--json]    cohort.vllm.StatelessProcessGroup and the same over TCPStore
#   tests/benchmark/run.sh tcpstore [--json]     the coordinator as a TCPStore, and PyTorch's own server
#   tests/benchmark/run.sh patterns [--json]     tensor maps, queues, experts, pipelines against hand-written code
#   tests/benchmark/run.sh gpu [--json]          what we add to NCCL's calls; exits 3 without a GPU
#   tests/benchmark/run.sh gpu --bundle FOLDER   the same from deploy/bundle.sh --gpu-tests FOLDER
#
# Nothing else should run meanwhile. All servers listen on 127.0.0.1 and end with the run.
# PYTHON (default "python3"): an interpreter with numpy and PyTorch, for python, stateless and tcpstore.
# BAZEL (default "bazel") may carry start-up options. BENCHMARK_BUILD_OPTIONS is passed to `build`.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."

fail() {
  echo "run.sh: $*" >&2
  exit 1
}

usage() {
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
}

need() {
  command -v "$1" > /dev/null || fail "$1 is missing ($2): run deploy/bootstrap.sh --benchmarks"
}

build() {
  local output
  # shellcheck disable=SC2086  # several options
  if ! output=$(${BAZEL:-bazel} build --config=opt ${BENCHMARK_BUILD_OPTIONS:-} "$@" 2>&1); then
    echo "$output" >&2
    fail "the build failed"
  fi
  bin=$(${BAZEL:-bazel} info --config=opt bazel-bin 2> /dev/null)
}

check_peer_systems() {
  need redis-server "package redis-server"
  need /usr/bin/python3 "package python3"
  /usr/bin/python3 -c 'from torch.distributed import TCPStore' 2> /dev/null ||
    fail "python3-torch (with TCPStore) is missing: run deploy/bootstrap.sh --benchmarks"
}

check_collective_libraries() {
  need mpirun "package openmpi-bin"
  [[ -e /usr/include/gloo/context.h ]] ||
    fail "libgloo-dev is missing: run deploy/bootstrap.sh --benchmarks"
  mpicc --showme:version > /dev/null 2>&1 ||
    fail "libopenmpi-dev is missing: run deploy/bootstrap.sh --benchmarks"
}

# Runs a driver; it and (by its death) all its servers end when this script does.
run_driver() {
  # A proxy must not stand between us and loopback.
  env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY -u grpc_proxy "$@" &
  driver=$!
  wait "$driver"
}

driver=""
bin=""
scratch=$(mktemp -d "${TMPDIR:-/tmp}/cohort-benchmark.XXXXXX")
memory_scratch=""
cleanup() {
  local status=$?
  trap - EXIT INT TERM
  if [[ -n $driver ]] && kill -0 "$driver" 2> /dev/null; then
    kill "$driver" 2> /dev/null || true
    wait "$driver" 2> /dev/null || true
  fi
  if ((status != 0)); then
    for log in "$scratch"/*.log; do
      [[ -s $log ]] && { echo "--- end of ${log##*/}" >&2; tail -n 5 "$log" | cut -c 1-300 >&2; }
    done
  fi
  rm -rf "$scratch" ${memory_scratch:+"$memory_scratch"}
  exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

section=${1:-}
[[ $# -gt 0 ]] && shift
ulimit -n "$(ulimit -Hn)"

peer_system_flags() {
  flags=(
    --bare-grpc-server "$bin/tests/benchmark/rendezvous/peer_systems/bare_grpc_server"
    --redis-server "$(command -v redis-server)"
    --tcpstore-script tests/benchmark/rendezvous/peer_systems/tcpstore_stateless.py
    --scratch "$scratch"
  )
}

# A Python whose torch.distributed has NCCL, for the flags of the GPU benchmark. PyTorch over Cohort
# needs the wheel of a bundle.
find_torch() {
  local bundle=$1 wheel
  torch_flags=()
  if python3 -c 'import sys, torch.distributed as d; sys.exit(not d.is_nccl_available())' \
    2> /dev/null; then
    torch_flags=(--torch-python "$(command -v python3)"
      --torch-script tests/benchmark/gpu/torch_implementation.py)
    for wheel in "$bundle"/wheel/cohort-*.whl; do
      [[ -e $wheel ]] || continue
      python3 -m zipfile -e "$wheel" "$scratch/package"
      export PYTHONPATH=$scratch/package:$PWD/client/python PATH=$bundle/bin:$PATH
      torch_flags+=(--cohort-torch)
    done
  else
    echo "torch is left out: there is no python3 with torch.distributed and its NCCL here" >&2
  fi
}

# The Python package in a folder of its own, which is left in $package.
build_python_package() {
  python=$(command -v "${PYTHON:-python3}") || fail "no ${PYTHON:-python3}"
  "$python" -c 'import numpy, torch.distributed as d, sys; sys.exit(not d.is_gloo_available())' 2> /dev/null ||
    fail "$python has no numpy or no torch.distributed with Gloo"
  local options=(--define system_libraries=shared)
  build "${options[@]}" //client/python/cohort:_core.so
  bin=$(${BAZEL:-bazel} info --config=opt "${options[@]}" bazel-bin 2> /dev/null)
  package=$scratch/package
  mkdir -p "$package/cohort/vllm"
  cp client/python/cohort/*.py "$bin/client/python/cohort/_core.so" "$package/cohort/"
  cp client/python/cohort/vllm/*.py "$package/cohort/vllm/"
}

case $section in
  rendezvous)
    check_peer_systems
    build //tests/benchmark/rendezvous:rendezvous_benchmark //tests/benchmark/rendezvous/peer_systems:bare_grpc_server \
      //coordinator:cohort-coordinator
    peer_system_flags
    run_driver "$bin/tests/benchmark/rendezvous/rendezvous_benchmark" "${flags[@]}" \
      --coordinator "$bin/coordinator/cohort-coordinator" "$@"
    ;;
  rendezvous-tls)
    build //tests/benchmark/rendezvous:rendezvous_benchmark //coordinator:cohort-coordinator
    deploy/certificates.sh "$scratch/certificates" coordinator=IP:127.0.0.1 rank=URI:spiffe://benchmark/rank
    run_driver "$bin/tests/benchmark/rendezvous/rendezvous_benchmark" --scratch "$scratch" \
      --certificates "$scratch/certificates" --coordinator "$bin/coordinator/cohort-coordinator" --journal memory "$@"
    ;;
  peer-systems)
    check_peer_systems
    build //tests/benchmark/rendezvous:peer_systems_benchmark //tests/benchmark/rendezvous/peer_systems:bare_grpc_server
    peer_system_flags
    run_driver "$bin/tests/benchmark/rendezvous/peer_systems_benchmark" "${flags[@]}" "$@"
    ;;
  flood)
    build //tests/benchmark/rendezvous/flood:tenant_flood //tests/benchmark/rendezvous/flood:tenant_flood_benchmark \
      //coordinator:cohort-coordinator
    run_driver "$bin/tests/benchmark/rendezvous/flood/tenant_flood_benchmark" --scratch "$scratch" \
      --flood "$bin/tests/benchmark/rendezvous/flood/tenant_flood" \
      --coordinator "$bin/coordinator/cohort-coordinator" "$@"
    ;;
  guarantees)
    build //tests/benchmark/guarantees:guarantees_benchmark //coordinator:cohort-coordinator
    run_driver "$bin/tests/benchmark/guarantees/guarantees_benchmark" --scratch "$scratch" \
      --coordinator "$bin/coordinator/cohort-coordinator" "$@"
    ;;
  collective)
    check_collective_libraries
    build //tests/benchmark/collective:collective_benchmark \
      //tests/benchmark/collective/members/gloo:gloo_member \
      //tests/benchmark/collective/members/memory_limit:limit_member \
      //tests/benchmark/collective/members:openmpi_member //tests/benchmark/collective/members:cohort_member \
      //tests/benchmark/collective/members:cohort_attached_member \
      //tests/benchmark/collective/members:cohort_daemon_member \
      //tests/benchmark/collective/members:cohort_tcp_member //tests/benchmark/collective/members:grpc_member \
      //tests/benchmark/collective:processor_load \
      //coordinator:cohort-coordinator //worker/daemon:cohort-worker
    [[ ! -w /dev/shm ]] || memory_scratch=$(mktemp -d /dev/shm/cohort-benchmark.XXXXXX)
    deploy/certificates.sh "$scratch/certificates" rank=URI:spiffe://benchmark/rank
    run_driver "$bin/tests/benchmark/collective/collective_benchmark" --scratch "$scratch" \
      --certificates "$scratch/certificates" \
      --memory-scratch "$memory_scratch" --programs "$bin/tests/benchmark/collective" \
      --mpirun "$(command -v mpirun)" --coordinator "$bin/coordinator/cohort-coordinator" \
      --worker "$bin/worker/daemon/cohort-worker" "$@"
    ;;
  python)
    build_python_package
    build //tests/benchmark/collective:collective_benchmark //tests/benchmark/collective/members:cohort_member \
      //tests/benchmark/collective/members/memory_limit:limit_member //coordinator:cohort-coordinator
    run_driver "$bin/tests/benchmark/collective/collective_benchmark" --scratch "$scratch" \
      --programs "$bin/tests/benchmark/collective" --coordinator "$bin/coordinator/cohort-coordinator" \
      --mpirun "" --worker "" --python "$python" --python-package "$package" \
      --python-member tests/benchmark/collective/members/python/member.py \
      --implementation cohort cohort-numpy cohort-torch torch-gloo limit "$@"
    ;;
  stateless)
    build_python_package
    # The group starts a coordinator of its own.
    build //coordinator:cohort-coordinator
    mkdir -p "$package/cohort/bin"
    cp "$bin/coordinator/cohort-coordinator" "$package/cohort/bin/"
    run_driver "$python" tests/benchmark/rendezvous/stateless_groups.py --package "$package" "$@"
    ;;
  tcpstore)
    build //coordinator:cohort-coordinator //tests/benchmark/rendezvous/tcpstore:tcpstore_load
    run_driver "${PYTHON:-python3}" tests/benchmark/rendezvous/tcpstore/tcpstore_servers.py \
      --coordinator "$bin/coordinator/cohort-coordinator" \
      --load "$bin/tests/benchmark/rendezvous/tcpstore/tcpstore_load" "$@"
    ;;
  patterns)
    build //tests/benchmark/patterns:patterns_benchmark //coordinator:cohort-coordinator
    [[ ! -w /dev/shm ]] || memory_scratch=$(mktemp -d /dev/shm/cohort-benchmark.XXXXXX)
    run_driver "$bin/tests/benchmark/patterns/patterns_benchmark" --scratch "$scratch" \
      --memory-scratch "$memory_scratch" --coordinator "$bin/coordinator/cohort-coordinator" "$@"
    ;;
  gpu)
    device_node=${COHORT_GPU_NODE:-/dev/nvidiactl}
    bundle=""
    if [[ ! -e $device_node ]]; then
      echo "no GPU here (there is no $device_node)"
      exit 3
    fi
    if [[ ${1:-} == --bundle ]]; then
      bundle=$(cd "${2:?--bundle FOLDER}" && pwd)
      program=$bundle/bin/gpu_benchmark
      shift 2
    else
      build //tests/benchmark/gpu:gpu_benchmark
      program=$bin/tests/benchmark/gpu/gpu_benchmark
    fi
    # shellcheck source=tests/gpu/find_nccl.sh
    . tests/gpu/find_nccl.sh
    find_nccl
    find_torch "$bundle"
    # A hang on a device must not hang the machine.
    TEST_TMPDIR=$scratch NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-lo} run_driver timeout --kill-after=10 900 "$program" \
      "${torch_flags[@]}" "$@"
    ;;
  -h | --help | help)
    usage
    ;;
  *)
    usage >&2
    fail "which benchmark? rendezvous, peer-systems, guarantees, collective, python, stateless, tcpstore, patterns or gpu"
    ;;
esac
