#include "tests/benchmark/cohort_implementation.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/rendezvous/call/connection.h"
#include "client/rendezvous/store_client.h"
#include "tests/benchmark/fleet.h"
#include "tests/benchmark/timing.h"

namespace cohort::benchmark {
namespace {

constexpr int kHandoffsPerRun = 20;

absl::StatusOr<Sample> Handoff(Fleet& fleet, const std::string& object) {
  return TimeHandoffs(
      kHandoffsPerRun,
      [&] {
        absl::StatusOr<std::string> received = fleet.member(1).Receive(0);
        if (received.ok() && *received != object) return absl::InternalError("another object came");
        return received.status();
      },
      [&] { return fleet.member(0).Send(object, 1); });
}

class Cohort final : public Implementation {
 public:
  Cohort(CoordinatorProcess coordinator, std::string journal)
      : coordinator_(std::move(coordinator)), journal_(std::move(journal)) {}

  std::string name() const override { return "cohort"; }
  std::string journal() const override { return journal_; }

  absl::StatusOr<Operation> Prepare(const Cell& cell) override {
    if (cell.kind == OperationKind::kJoin) {
      return Operation([this, cell] { return TimeJoin(cell); });
    }
    if (cell.kind == OperationKind::kPut) return PreparePuts(cell);

    COHORT_ASSIGN_OR_RETURN(std::shared_ptr<Fleet> fleet,
                            Fleet::Join(coordinator_.address, cell.members, ConnectionCount(cell)));
    const std::string object(cell.bytes, 'x');
    switch (cell.kind) {
      case OperationKind::kBarrier:
        return Operation([fleet] { return fleet->TimeBarrier(); });
      case OperationKind::kAllGather:
        return Operation([fleet, object] { return fleet->TimeAllGather(object); });
      case OperationKind::kHandoff:
        return Operation([fleet, object] { return Handoff(*fleet, object); });
      default:
        return absl::UnimplementedError("not an operation of groups");
    }
  }

 private:
  absl::StatusOr<Sample> TimeJoin(const Cell& cell) {
    absl::Duration joining;
    COHORT_RETURN_IF_ERROR(
        Fleet::Join(coordinator_.address, cell.members, ConnectionCount(cell), &joining).status());
    Sample sample;
    sample.latencies.push_back(joining);
    return sample;
  }

  absl::StatusOr<Operation> PreparePuts(const Cell& cell) {
    auto clients = std::make_shared<std::vector<std::unique_ptr<client::StoreClient>>>();
    client::ConnectionOptions options;
    options.address = coordinator_.address;
    for (int i = 0; i < ConnectionCount(cell); ++i) {
      COHORT_ASSIGN_OR_RETURN(auto connection, client::Connection::Create(options));
      clients->push_back(client::StoreClient::Create(std::move(connection), ""));
    }
    const std::string value(cell.bytes, 'x');
    return Operation([clients, cell, value] {
      return TimeCallers(cell.members, absl::Milliseconds(500), [&](int caller) {
        return (*clients)[caller % clients->size()]
            ->Put(absl::StrCat("benchmark/caller-", caller), value)
            .status();
      });
    });
  }

  const CoordinatorProcess coordinator_;
  const std::string journal_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Implementation>> StartCohort(const CoordinatorOptions& options) {
  COHORT_ASSIGN_OR_RETURN(CoordinatorProcess coordinator, StartCoordinator(options));
  return std::make_unique<Cohort>(std::move(coordinator), options.journal);
}

}  // namespace cohort::benchmark
