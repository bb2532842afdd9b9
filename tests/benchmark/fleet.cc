#include "tests/benchmark/fleet.h"

#include <atomic>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tests/benchmark/timing.h"

namespace cohort::benchmark {
namespace {

using Made = absl::StatusOr<std::unique_ptr<client::ProcessGroup>>;

}  // namespace

absl::StatusOr<std::unique_ptr<Fleet>> Fleet::Join(const std::string& address, int members,
                                                   int connections, absl::Duration* joining) {
  static std::atomic<int> last_group{0};
  client::ProcessGroupOptions options;
  options.connection.address = address;
  options.group = absl::StrCat("benchmark-", ++last_group);
  options.world_size = members;
  options.join_timeout = absl::Seconds(60);
  options.timeout = absl::Seconds(60);

  std::unique_ptr<Fleet> fleet(new Fleet);
  fleet->groups_.resize(members);
  const SteadyTime start = Now();
  for (int i = 0; i < connections; ++i) {
    COHORT_ASSIGN_OR_RETURN(auto connection, client::Connection::Create(options.connection));
    fleet->connections_.push_back(std::move(connection));
  }
  Completion completion(members);
  for (int rank = 0; rank < members; ++rank) {
    options.rank = rank;
    options.shared_connection = fleet->connections_[rank % connections];
    client::ProcessGroup::CreateAsync(options,
                                      [&completion, group = &fleet->groups_[rank]](Made made) {
                                        const absl::Status status = made.status();
                                        if (made.ok()) *group = *std::move(made);
                                        completion.Done(status);
                                      });
  }
  COHORT_ASSIGN_OR_RETURN(const SteadyTime complete, completion.Wait());
  if (joining != nullptr) *joining = absl::FromChrono(complete - start);
  return fleet;
}

Fleet::~Fleet() {
  for (const auto& group : groups_) {
    if (group == nullptr) continue;
    group->Close("the measurement is over").IgnoreError();
    break;
  }
}

absl::StatusOr<Sample> Fleet::TimeBarrier(absl::Duration timeout) {
  client::RoundOptions options;
  options.timeout = timeout;
  return TimeFanOut(size(), [&](int rank, std::function<void(const absl::Status&)> done) {
    groups_[rank]->BarrierAsync(
        options,
        [done = std::move(done)](absl::Status status, client::RoundReport) { done(status); });
  });
}

absl::StatusOr<Sample> Fleet::TimeAllGather(const std::string& object) {
  return TimeFanOut(size(), [&](int rank, std::function<void(const absl::Status&)> done) {
    groups_[rank]->AllGatherAsync(
        object, {},
        [done = std::move(done),
         expected = size()](absl::StatusOr<client::ObjectList> objects) {
          if (objects.ok() && static_cast<int>(objects->size()) != expected) {
            done(absl::InternalError("objects are missing"));
          } else {
            done(objects.status());
          }
        });
  });
}

}  // namespace cohort::benchmark
