// Settings that let several ranks share one GPU in tests.
#ifndef COHORT_WORKER_GROUP_TESTING_NCCL_SETTINGS_H_
#define COHORT_WORKER_GROUP_TESTING_NCCL_SETTINGS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace cohort::testing {

// Returns NCCL's variables for the process of one rank. NCCL takes each rank for another host, and
// connects the ranks by sockets. Kernels are small enough for those of all ranks to run at once.
inline std::vector<std::pair<std::string, std::string>> NcclSettingsOnOneGpu(int rank) {
  return {
      {"NCCL_HOSTID", absl::StrCat("cohort-rank-", rank)},
      {"NCCL_SOCKET_IFNAME", "lo"},
      {"NCCL_NET", "Socket"},
      {"NCCL_IB_DISABLE", "1"},
      {"NCCL_P2P_DISABLE", "1"},
      {"NCCL_SHM_DISABLE", "1"},
      {"NCCL_NVLS_ENABLE", "0"},
      {"NCCL_MNNVL_ENABLE", "0"},
      {"NCCL_MAX_NCHANNELS", "2"},
      // NCCL refuses to share a GPU without it, from version 2.30 on.
      {"NCCL_MULTI_RANK_GPU_ENABLE", "1"},
      {"NCCL_DEBUG", "WARN"},
  };
}

}  // namespace cohort::testing

#endif  // COHORT_WORKER_GROUP_TESTING_NCCL_SETTINGS_H_
