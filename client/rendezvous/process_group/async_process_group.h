// The methods of a ProcessGroup that do not block, for event loops and fan-out.
//
//   group->async().Barrier({}, [](absl::Status status, RoundReport report) { ... });
//
// Each does what the method of the same name in process_group.h does, with the same errors. `done`
// runs once, on a thread of the library, and must not block. It may run after the ProcessGroup is
// destroyed: with CANCELLED. Several calls may be in flight; rounds of one name take numbers in the
// order of the calls.
#ifndef COHORT_CLIENT_RENDEZVOUS_PROCESS_GROUP_ASYNC_PROCESS_GROUP_H_
#define COHORT_CLIENT_RENDEZVOUS_PROCESS_GROUP_ASYNC_PROCESS_GROUP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/rank_set.h"
#include "client/rendezvous/call/cancellation.h"
#include "client/rendezvous/process_group/object_list.h"
#include "client/rendezvous/process_group/process_group_types.h"
#include "client/rendezvous/report/report.h"

namespace cohort::client {

struct AsyncOptions {
  absl::Duration timeout = absl::ZeroDuration();  // zero: the group's
  // Ends the call early, with its reason. May be null.
  std::shared_ptr<Cancellation> cancellation;
};

template <typename T>
using Done = std::function<void(absl::StatusOr<T>)>;
using StatusDone = std::function<void(absl::Status)>;

// Thread-safe. No method waits for another thread.
class AsyncProcessGroup {
 public:
  virtual void Describe(const AsyncOptions& options, Done<GroupInfo> done) = 0;
  virtual void WhoIsMissing(const AsyncOptions& options, Done<WhoIsMissingReport> done) = 0;

  // Several in flight keep the order of the calls. A send whose timeout ends before it may start
  // fails unsent.
  virtual void Send(absl::string_view object, int dst, absl::string_view tag,
                    const AsyncOptions& options, StatusDone done) = 0;
  // `src` absent: any.
  virtual void Receive(std::optional<int> src, absl::string_view tag, const AsyncOptions& options,
                       Done<ReceivedObject> done) = 0;
  virtual void Broadcast(absl::string_view object, int root, const RoundOptions& options,
                         Done<std::string> done) = 0;
  virtual void AllGather(absl::string_view object, const RoundOptions& options,
                         Done<ObjectList> done) = 0;
  virtual void Gather(absl::string_view object, int root, const RoundOptions& options,
                      Done<ObjectList> done) = 0;
  virtual void Scatter(const std::vector<std::string>& objects, int root,
                       const RoundOptions& options, Done<std::string> done) = 0;
  virtual void ExpireData(std::optional<absl::Duration> older_than, const AsyncOptions& options,
                          Done<int64_t> done) = 0;

  virtual void Barrier(const RoundOptions& options,
                       std::function<void(absl::Status, RoundReport)> done) = 0;
  virtual void CancelBarrier(absl::string_view name, absl::string_view reason,
                             const AsyncOptions& options, StatusDone done) = 0;
  virtual void Vote(int64_t value, VoteOp op, const RoundOptions& options,
                    Done<VoteResult> done) = 0;
  virtual void AgreeAlive(const AsyncOptions& options, Done<std::vector<RankRange>> done) = 0;

  virtual void PublishUniqueIds(absl::string_view name, const std::vector<std::string>& ids,
                                const AsyncOptions& options, StatusDone done) = 0;
  virtual void FetchUniqueIds(absl::string_view name, const AsyncOptions& options,
                              Done<std::vector<std::string>> done) = 0;

  virtual void ReportError(absl::string_view detail, bool fatal,
                           const std::vector<RankRange>& suspected, const AsyncOptions& options,
                           StatusDone done) = 0;
  virtual void Rejoin(const AsyncOptions& options, StatusDone done) = 0;
  virtual void ProposeView(const std::vector<RankRange>& remove,
                           const std::vector<std::string>& add, bool drop_silent,
                           const AsyncOptions& options, Done<ViewResult> done) = 0;
  virtual void AckView(int64_t proposal, bool accept, absl::string_view reason,
                       const AsyncOptions& options, Done<ViewResult> done) = 0;
  virtual void Leave(absl::string_view reason, const AsyncOptions& options, StatusDone done) = 0;
  virtual void Close(absl::string_view reason, const AsyncOptions& options, StatusDone done) = 0;

 protected:
  ~AsyncProcessGroup() = default;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_PROCESS_GROUP_ASYNC_PROCESS_GROUP_H_
