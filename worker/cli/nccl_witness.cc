#include "worker/cli/nccl_witness.h"

#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "worker/communicator/nccl/ras.h"

namespace cohort::worker {
namespace {

class RasWitness final : public cli::NcclWitness {
 public:
  absl::StatusOr<cli::NcclTestimony> Ask(const std::string& address,
                                         absl::Duration patience) override {
    NcclRasOptions options;
    options.address = address;
    options.greeting = absl::Seconds(1);
    COHORT_ASSIGN_OR_RETURN(const NcclRasReport report,
                            AskNcclRas(options, Clock::Steady().Now() + patience));
    cli::NcclTestimony testimony;
    testimony.version = report.nccl_version;
    testimony.timeouts = report.timeouts;
    for (const NcclRasCommunicator& communicator : report.communicators) {
      testimony.communicators.push_back(
          {communicator.hash, communicator.size, FindingsOf(communicator)});
    }
    return testimony;
  }
};

}  // namespace

std::unique_ptr<cli::NcclWitness> MakeNcclWitness() { return std::make_unique<RasWitness>(); }

}  // namespace cohort::worker
