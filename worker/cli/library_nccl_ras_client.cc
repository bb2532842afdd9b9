#include "worker/cli/library_nccl_ras_client.h"

#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "worker/communicator/nccl/ras/ras_client.h"

namespace cohort::worker {
namespace {

class LibraryNcclRasClient final : public cli::NcclRasClient {
 public:
  absl::StatusOr<cli::NcclRasSummary> Ask(const std::string& address,
                                          absl::Duration timeout) override {
    NcclRasOptions options;
    options.address = address;
    options.greeting = absl::Seconds(1);
    COHORT_ASSIGN_OR_RETURN(const NcclRasReport report,
                            AskNcclRas(options, Clock::Steady().Now() + timeout));
    cli::NcclRasSummary summary;
    summary.version = report.nccl_version;
    summary.timeouts = report.timeouts;
    for (const NcclRasCommunicator& communicator : report.communicators) {
      summary.communicators.push_back(
          {communicator.hash, communicator.size, FindingsOf(communicator)});
    }
    return summary;
  }
};

}  // namespace

std::unique_ptr<cli::NcclRasClient> MakeNcclRasClient() {
  return std::make_unique<LibraryNcclRasClient>();
}

}  // namespace cohort::worker
