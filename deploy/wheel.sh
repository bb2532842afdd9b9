#!/usr/bin/env bash
# Builds the wheel of the Python package: with the coordinator, the worker, the command line and all
# libraries but glibc's and GCC's, for Python 3.10 and later on Linux with glibc 2.34 and later.
#
#   deploy/wheel.sh FOLDER    leaves cohort-VERSION-cp310-abi3-manylinux_2_34_ARCH.whl there
#
# auditwheel brings the libraries; the wheels in wheel_tools.txt are downloaded for that.
# BAZEL (default "bazel") may carry start-up options. WHEEL_BUILD_OPTIONS is passed to `build`.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
usage() { sed -n '2,/^set -/p' "${BASH_SOURCE[0]}" | sed -e '/^set -/d' -e 's/^# \{0,1\}//' >&2; exit 2; }
[[ $# -eq 1 && $1 != -* ]] || usage
mkdir -p "$1"
folder=$(cd "$1" && pwd)
readonly PYTHON=/usr/bin/python3

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cd "$root"
# The module and the programs share their libraries.
options=(--config=quickstart --define system_libraries=shared)
# shellcheck disable=SC2086  # several options
${BAZEL:-bazel} build "${options[@]}" ${WHEEL_BUILD_OPTIONS:-} //client/python/cohort:_core.so \
  //coordinator:cohort-coordinator //worker/daemon:cohort-worker //worker/cli:cohort >&2
bin=$(${BAZEL:-bazel} info "${options[@]}" bazel-bin 2> /dev/null)
version=$(sed -n 's/.*kVersion\[\] = "\(.*\)".*/\1/p' base/version.h)

wheel=$scratch/wheel
info=$wheel/cohort-$version.dist-info
mkdir -p "$wheel/cohort/bin" "$wheel/cohort/torch" "$wheel/cohort/vllm" "$info"
install -m 0644 client/python/cohort/*.py client/python/cohort/*.pyi client/python/cohort/py.typed \
  "$wheel/cohort/"
install -m 0644 client/python/cohort/torch/*.py "$wheel/cohort/torch/"
install -m 0644 client/python/cohort/vllm/*.py "$wheel/cohort/vllm/"
install -m 0755 "$bin/client/python/cohort/_core.so" "$wheel/cohort/_core.abi3.so"
install -m 0755 "$bin/coordinator/cohort-coordinator" "$bin/worker/daemon/cohort-worker" \
  "$bin/worker/cli/cohort" "$wheel/cohort/bin/"
strip "$wheel"/cohort/_core.abi3.so "$wheel"/cohort/bin/*
sed "s/@VERSION@/$version/" client/python/METADATA > "$info/METADATA"
install -m 0644 LICENSE "$info/LICENSE"
cat > "$info/WHEEL" << END
Wheel-Version: 1.0
Generator: deploy/wheel.sh
Root-Is-Purelib: false
Tag: cp310-abi3-linux_$(uname -m)
END
install -m 0644 client/python/entry_points.txt "$info/entry_points.txt"

$PYTHON -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
  --target "$scratch/tools" -r deploy/wheel_tools.txt >&2
export PYTHONPATH=$scratch/tools PATH=$scratch/tools/bin:$PATH
$PYTHON -m wheel pack --dest-dir "$scratch" "$wheel" >&2
$PYTHON -m auditwheel repair --plat "manylinux_2_34_$(uname -m)" --strip --only-plat \
  --wheel-dir "$folder" "$scratch"/*.whl >&2
ls -l "$folder"/cohort-"$version"-*.whl >&2
