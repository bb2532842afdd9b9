#!/usr/bin/env bash
# Installs the Debian packages that Cohort needs and that are missing, and makes a CUDA toolkit with
# NCCL's header if the machine has none. When nothing is missing, it needs neither the network nor
# root, and changes nothing.
#
#   deploy/bootstrap.sh [--benchmarks] [--develop] [--torch]
#
# --torch: also the PyTorch that tests of the Python package need, newer than Debian's. It is kept in
# COHORT_TORCH (default: ~/.cache/cohort-torch); COHORT_WITHOUT_TORCH=1 leaves it out, and these tests
# are skipped.
# The toolkit is kept in COHORT_CUDA_CACHE (default: ~/.cache/cohort-cuda); cuda_toolkit.py makes it.
# COHORT_WITHOUT_GPU=1 asks for a build without GPU code: no toolkit is made then.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  sed -n '2,/^set -/p' "${BASH_SOURCE[0]}" | sed -e '/^set -/d' -e 's/^# \{0,1\}//'
}

fail() {
  echo "bootstrap: $*" >&2
  exit 1
}

# The name=version words of the groups named.
wanted() {
  local group name rest
  while read -r group name rest; do
    case " $* " in *" $group "*) echo "$name" ;; esac
  done < "$here/packages.txt"
}

# The installed version, or nothing.
installed_version() {
  dpkg-query --show --showformat='${db:Status-Abbrev} ${Version}' "$1" 2> /dev/null |
    sed -n 's/^ii  *//p'
}

# $2 is a pattern, hence not quoted where it is used.
matches() {
  # shellcheck disable=SC2053
  [[ $1 == $2 ]]
}

# Those of the words given that are not installed. Fails if one is, but not as Cohort wants it.
missing() {
  local word name pattern version
  for word in "$@"; do
    name=${word%%=*}
    pattern=${word#*=}
    version=$(installed_version "$name")
    if [[ -z $version ]]; then
      echo "$word"
    elif ! matches "$version" "$pattern"; then
      fail "$name $version is installed; Cohort is built with $pattern, from Debian 12"
    fi
  done
}

as_root() {
  if [[ $(id -u) -eq 0 ]]; then
    "$@"
  elif command -v sudo > /dev/null; then
    sudo "$@"
  else
    fail "must be root, or have sudo, to install packages"
  fi
}

install_packages() {
  as_root apt-get update -qq || fail "apt-get update failed; is the network there?"
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "$@" < /dev/null ||
    fail "apt-get could not install: $*"
}

# Installs the missing packages of the named groups.
install_missing() {
  local words=() lacking
  mapfile -t words < <(wanted "$@")
  [[ ${#words[@]} -gt 0 ]] || return 0
  lacking=$(missing "${words[@]}")
  [[ -n $lacking ]] || return 0
  echo "bootstrap: installing ${lacking//$'\n'/ }"
  local absent
  mapfile -t absent <<< "$lacking"
  install_packages "${absent[@]}"
  lacking=$(missing "${words[@]}")
  [[ -z $lacking ]] || fail "still missing after the installation: ${lacking//$'\n'/ }"
}

# Puts PyTorch and ml_dtypes into a folder of their own, for Debian's Python.
install_python_packages() {
  local folder=${COHORT_TORCH:-${HOME:-/tmp}/.cache/cohort-torch}
  local wanted part=$folder.part
  wanted=$(grep -v '^#' "$here/python_packages.txt")
  [[ $(cat "$folder/version" 2> /dev/null) != "$wanted" ]] || return 0
  echo "bootstrap: installing ${wanted//$'\n'/ }"
  rm -rf "$folder" "$part"
  PIP_ROOT_USER_ACTION=ignore /usr/bin/python3 -m pip install --quiet --target "$part" \
    --requirement "$here/python_packages.txt" ||
    fail "pip could not install ${wanted//$'\n'/ }; COHORT_WITHOUT_TORCH=1 leaves it out"
  # The tests use Debian's numpy, as all others do.
  rm -rf "$part"/numpy "$part"/numpy-* "$part"/numpy.libs
  echo "$wanted" > "$part/version"
  mv "$part" "$folder"
}

main() {
  local groups=(test) torch=false
  while [[ $# -gt 0 ]]; do
    case $1 in
      --benchmarks) groups+=(benchmark) ;;
      --develop) groups+=(develop) ;;
      --torch) torch=true ;;
      -h | --help)
        usage
        exit 0
        ;;
      *)
        usage >&2
        exit 2
        ;;
    esac
    shift
  done
  command -v dpkg-query > /dev/null || fail "this is not Debian: no dpkg-query"

  install_missing "${groups[@]}"
  # Debian's Python, whose pip is in packages.txt; another Python in the path may have none.
  /usr/bin/python3 "$here/cuda_toolkit.py" make
  if $torch && [[ -z ${COHORT_WITHOUT_TORCH:-} ]]; then install_python_packages; fi
}

main "$@"
