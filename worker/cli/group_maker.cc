#include "worker/cli/group_maker.h"

#include "base/status_macros.h"
#include "worker/group/local_group.h"

namespace cohort::worker {
namespace {

using GroupOr = absl::StatusOr<std::unique_ptr<client::Group>>;

GroupOr MakeLocal(const cli::GroupRequest& request) {
  LocalGroupOptions options;
  options.membership.connection = request.coordinator;
  options.membership.group = request.group;
  options.membership.rank = request.rank;
  options.membership.world_size = request.world_size;
  options.membership.member = request.member;
  options.membership.store_timeout = request.form_timeout;
  options.membership.on_waiting = request.on_waiting;
  options.bootstrap.timeout = request.form_timeout;
  options.timeout = request.call_timeout;
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<LocalGroup> group, LocalGroup::Create(options));
  return group;
}

class Maker final : public cli::GroupMaker {
 public:
  GroupOr Make(const cli::GroupRequest& request) override {
    switch (request.form) {
      case cli::GroupForm::kLocal:
        return MakeLocal(request);
      case cli::GroupForm::kAttached:
        return absl::UnimplementedError(
            "--form attached: this program cannot attach to a worker's memory yet");
      case cli::GroupForm::kRemote:
        return absl::UnimplementedError("--form remote: this program cannot call a worker yet");
    }
    return absl::InvalidArgumentError("no such form of a group");
  }
};

}  // namespace

std::unique_ptr<cli::GroupMaker> MakeGroupMaker() { return std::make_unique<Maker>(); }

}  // namespace cohort::worker
