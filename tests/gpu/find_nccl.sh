# shellcheck shell=bash
# To be sourced. find_nccl sets COHORT_NCCL_LIBRARY to the NCCL of the wheel that PyTorch brings, where
# a Python has it: it is often newer than the one that the loader finds.
find_nccl() {
  [[ -z ${COHORT_NCCL_LIBRARY:-} ]] || return 0
  local library
  library=$(python3 -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])' 2> /dev/null || true)
  if [[ -n $library && -e $library/lib/libnccl.so.2 ]]; then
    export COHORT_NCCL_LIBRARY=$library/lib/libnccl.so.2
    echo "NCCL: $COHORT_NCCL_LIBRARY" >&2
  fi
}
