#!/usr/bin/env bash
# Makes a CA, and certificates of it, for a trial. A reader of the folder can take every name in it, so a cluster in
# use takes its certificates from a service such as cert-manager.
#
#   deploy/certificates.sh FOLDER NAME=ALTERNATIVE_NAMES...
#   deploy/certificates.sh certificates coordinator=DNS:coordinator,IP:10.0.0.4 rank=URI:spiffe://example/rank
#
# Writes FOLDER/NAME/tls.crt, tls.key and ca.crt for each NAME, as a Secret of Kubernetes has them. They are valid for
# 30 days. The script changes nothing if it has made them all with the same arguments, and they are valid for another day.
set -euo pipefail
umask 077

if [[ $# -lt 2 || ${1-} == -* ]]; then
  sed -n '2,/^set -/p' "${BASH_SOURCE[0]}" | sed -e '/^set -/d' -e 's/^# \{0,1\}//' >&2
  exit 2
fi
folder=$1
shift
new_key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)

# The file `made-for` is written last, when everything is there.
all_valid() {
  local pair
  [[ -f $folder/made-for && $(< "$folder/made-for") == "$*" ]] || return 1
  for pair in "$@"; do
    openssl x509 -in "$folder/${pair%%=*}/tls.crt" -checkend 86400 -noout > "$folder/log" 2>&1 || return 1
  done
}

# Inside of it the shell does not stop at errors.
make_all() {
  local pair name
  openssl req -x509 "${new_key[@]}" -days 30 -subj /CN=cohort-ca -keyout "$folder/ca.key" -out "$folder/ca.crt" || return 1
  for pair in "$@"; do
    name=${pair%%=*}
    mkdir -p "$folder/$name" &&
      openssl req "${new_key[@]}" -subj "/CN=$name" -keyout "$folder/$name/tls.key" -out "$folder/request" &&
      openssl x509 -req -in "$folder/request" -CA "$folder/ca.crt" -CAkey "$folder/ca.key" -days 30 \
        -extfile <(echo "subjectAltName=${pair#*=}") -out "$folder/$name/tls.crt" &&
      cp "$folder/ca.crt" "$folder/$name/" || return 1
  done
  rm "$folder/ca.key" "$folder/request" && echo "$*" > "$folder/made-for"
}

mkdir -p "$folder"
if ! all_valid "$@"; then
  rm -f "$folder/made-for"
  make_all "$@" > "$folder/log" 2>&1 || { rm -f "$folder/ca.key"; cat "$folder/log" >&2; exit 1; }
fi
rm -f "$folder/log"
