#include "tests/benchmark/rendezvous/benchmark_group.h"

#include <atomic>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tests/benchmark/rendezvous/timing.h"

namespace cohort::benchmark {
namespace {

using Made = absl::StatusOr<std::unique_ptr<client::ProcessGroup>>;

}  // namespace

absl::StatusOr<std::unique_ptr<BenchmarkGroup>> BenchmarkGroup::Join(const std::string& address,
                                                                     int members, int connections,
                                                                     absl::Duration* joining) {
  static std::atomic<int> last_group{0};
  client::ProcessGroupOptions options;
  options.connection.address = address;
  options.group = absl::StrCat("benchmark-", ++last_group);
  options.world_size = members;
  options.join_timeout = absl::Seconds(60);
  options.timeout = absl::Seconds(60);

  std::unique_ptr<BenchmarkGroup> group(new BenchmarkGroup);
  group->members_.resize(members);
  const SteadyTime start = Now();
  for (int i = 0; i < connections; ++i) {
    COHORT_ASSIGN_OR_RETURN(auto connection, client::Connection::Create(options.connection));
    group->connections_.push_back(std::move(connection));
  }
  Completion completion(members);
  for (int rank = 0; rank < members; ++rank) {
    options.rank = rank;
    options.shared_connection = group->connections_[rank % connections];
    client::ProcessGroup::CreateAsync(options,
                                      [&completion, group = &group->members_[rank]](Made made) {
                                        const absl::Status status = made.status();
                                        if (made.ok()) *group = *std::move(made);
                                        completion.Done(status);
                                      });
  }
  COHORT_ASSIGN_OR_RETURN(const SteadyTime complete, completion.Wait());
  if (joining != nullptr) *joining = absl::FromChrono(complete - start);
  return group;
}

BenchmarkGroup::~BenchmarkGroup() {
  for (const auto& member : members_) {
    if (member == nullptr) continue;
    member->Close("the measurement is over").IgnoreError();
    break;
  }
}

absl::StatusOr<Sample> BenchmarkGroup::TimeBarrier(absl::Duration timeout) {
  client::RoundOptions options;
  options.timeout = timeout;
  return TimeFanOut(size(), [&](int rank, std::function<void(const absl::Status&)> done) {
    members_[rank]->async().Barrier(
        options,
        [done = std::move(done)](absl::Status status, client::RoundReport) { done(status); });
  });
}

absl::StatusOr<Sample> BenchmarkGroup::TimeAllGather(const std::string& object) {
  return TimeFanOut(size(), [&](int rank, std::function<void(const absl::Status&)> done) {
    members_[rank]->async().AllGather(
        object, {},
        [done = std::move(done), expected = size()](absl::StatusOr<client::ObjectList> objects) {
          if (objects.ok() && static_cast<int>(objects->size()) != expected) {
            done(absl::InternalError("objects are missing"));
          } else {
            done(objects.status());
          }
        });
  });
}

}  // namespace cohort::benchmark
