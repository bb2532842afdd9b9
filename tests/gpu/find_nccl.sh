# shellcheck shell=bash
# To be sourced. find_nccl sets COHORT_NCCL_LIBRARY where the loader would not find an NCCL and a
# Python has the wheel, which PyTorch brings.
find_nccl() {
  [[ -z ${COHORT_NCCL_LIBRARY:-} ]] || return 0
  ! ldconfig -p 2> /dev/null | grep -q 'libnccl\.so\.2' || return 0
  local library
  for library in "${CUDA_HOME:-/usr/local/cuda}/lib64/libnccl.so.2" /usr/local/cuda/lib64/libnccl.so.2; do
    [[ ! -e $library ]] || return 0
  done
  library=$(python3 -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])' 2> /dev/null || true)
  if [[ -n $library && -e $library/lib/libnccl.so.2 ]]; then
    export COHORT_NCCL_LIBRARY=$library/lib/libnccl.so.2
    echo "NCCL: $COHORT_NCCL_LIBRARY" >&2
  fi
}
