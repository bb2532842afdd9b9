#!/bin/sh
# No public header includes gRPC, generated code, or a private header.
set -eu
if grep -nE '#include .*(grpc|\.pb\.h|google/protobuf|_impl\.h)' "$@"; then
  echo "a public header includes a header that it should hide" >&2
  exit 1
fi
