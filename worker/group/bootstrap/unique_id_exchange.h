// Exchanges the ids of communicators between the ranks of a group, and reports how far the ranks
// are.
#ifndef COHORT_WORKER_GROUP_BOOTSTRAP_UNIQUE_ID_EXCHANGE_H_
#define COHORT_WORKER_GROUP_BOOTSTRAP_UNIQUE_ID_EXCHANGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/rendezvous/process_group/process_group.h"

namespace cohort::worker {

// The exchange of one rank, in one generation of a group. Its calls and their errors are those of
// ProcessGroup.
class UniqueIdExchange {
 public:
  using Phase = client::ProcessGroup::InitPhase;

  virtual ~UniqueIdExchange() = default;

  virtual const std::string& group() const = 0;
  virtual int64_t generation() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual absl::Status Publish(absl::string_view name, const std::vector<std::string>& ids) = 0;
  virtual absl::StatusOr<std::vector<std::string>> Fetch(absl::string_view name,
                                                         absl::Duration timeout) = 0;
  virtual absl::Status Report(absl::string_view name, Phase phase, absl::string_view detail) = 0;
};

// For a rank whose membership this process holds.
class MemberUniqueIds final : public UniqueIdExchange {
 public:
  // `member` outlives it.
  explicit MemberUniqueIds(client::ProcessGroup* member) : member_(*member) {}

  const std::string& group() const override { return member_.group(); }
  int64_t generation() const override { return member_.generation(); }
  int rank() const override { return member_.rank(); }
  int size() const override { return member_.world_size(); }

  absl::Status Publish(absl::string_view name, const std::vector<std::string>& ids) override {
    return member_.PublishUniqueIds(name, ids);
  }
  absl::StatusOr<std::vector<std::string>> Fetch(absl::string_view name,
                                                 absl::Duration timeout) override {
    return member_.FetchUniqueIds(name, timeout);
  }
  absl::Status Report(absl::string_view name, Phase phase, absl::string_view detail) override {
    return member_.ReportInit(name, phase, detail);
  }

 private:
  client::ProcessGroup& member_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_BOOTSTRAP_UNIQUE_ID_EXCHANGE_H_
