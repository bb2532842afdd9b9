#include "worker/group/bootstrap/nccl_bootstrap.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "worker/communicator/nccl/clique/nccl_clique.h"
#include "worker/communicator/nccl/ras/ras_client.h"
#include "worker/cuda/device/cuda_device.h"

namespace cohort::worker {
namespace {

using Phase = UniqueIdExchange::Phase;

constexpr char kName[] = "nccl";

std::string NameOfRoot(int root) { return root == 0 ? kName : absl::StrCat(kName, ".", root); }

class NcclBootstrap {
 public:
  NcclBootstrap(UniqueIdExchange& exchange, const NcclBootstrapOptions& options)
      : exchange_(exchange),
        options_(options),
        deadline_(Clock::Steady().Now() + options.timeout) {}

  absl::StatusOr<std::unique_ptr<NcclCommunicator>> Run(Communicator* host) {
    COHORT_ASSIGN_OR_RETURN(const cuda::DeviceInfo device, cuda::DescribeDevice(options_.device));
    NcclCommunicatorInit init;
    init.nccl = options_.nccl;
    init.device = options_.device;
    init.compute_capability =
        device.compute_capability.first * 10 + device.compute_capability.second;
    init.name = absl::StrCat(exchange_.group(), ".", exchange_.generation());
    COHORT_ASSIGN_OR_RETURN(init.ids, ExchangeIds());
    Report(Phase::kCallingInit,
           absl::StrCat(device.name, ", ", device.pci_bus_id, ", NCCL ", options_.nccl->version));
    init.host = host;
    init.agreement = options_.agreement;
    init.operation_log = options_.operation_log;
    init.progress = options_.progress;
    COHORT_ASSIGN_OR_RETURN(std::unique_ptr<NcclCommunicator> formed,
                            NcclCommunicator::Form(std::move(init), deadline_));
    Report(Phase::kDone, "");
    return formed;
  }

  // The reports are for people; forming continues without them.
  void Report(Phase phase, absl::string_view detail) {
    exchange_.Report(kName, phase, detail).IgnoreError();
  }

 private:
  absl::StatusOr<std::vector<std::string>> ExchangeIds() {
    const int roots = NcclRoots(exchange_.size());
    std::vector<std::string> ids(static_cast<size_t>(roots));
    for (int root = 0; root < roots; ++root) {
      if (RankOfNcclRoot(root) != exchange_.rank()) continue;
      std::string& id = ids[static_cast<size_t>(root)];
      COHORT_ASSIGN_OR_RETURN(id, NewNcclId(*options_.nccl));
      COHORT_RETURN_IF_ERROR(exchange_.Publish(NameOfRoot(root), {id}));
    }
    for (int root = 0; root < roots; ++root) {
      std::string& id = ids[static_cast<size_t>(root)];
      if (!id.empty()) continue;
      const absl::Duration left =
          std::max(deadline_ - Clock::Steady().Now(), absl::Milliseconds(1));
      COHORT_ASSIGN_OR_RETURN(std::vector<std::string> fetched,
                              exchange_.Fetch(NameOfRoot(root), left));
      if (fetched.size() != 1) {
        return absl::FailedPreconditionError(absl::StrCat("rank ", RankOfNcclRoot(root),
                                                          " has published ", fetched.size(),
                                                          " ids for one communicator"));
      }
      id = std::move(fetched[0]);
    }
    Report(Phase::kGotId, "");
    return ids;
  }

  UniqueIdExchange& exchange_;
  const NcclBootstrapOptions& options_;
  const Instant deadline_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NcclCommunicator>> BootstrapNccl(
    UniqueIdExchange& ids, Communicator* host, const NcclBootstrapOptions& options) {
  NcclBootstrap bootstrap(ids, options);
  absl::StatusOr<std::unique_ptr<NcclCommunicator>> formed = bootstrap.Run(host);
  if (formed.ok()) return formed;
  // NCCL's own threads answer even while NCCL makes no progress.
  if (absl::IsDeadlineExceeded(formed.status())) formed = WithNcclFindings(formed.status());
  bootstrap.Report(Phase::kFailed, formed.status().message());
  // The other ranks would wait for this rank in vain.
  host->Abort(absl::StrCat("rank ", ids.rank(),
                           " could not form NCCL's group: ", formed.status().message()));
  return formed.status();
}

}  // namespace cohort::worker
