// A coordinator of one member that does as a test says: refuses, delays, loses, counts. It speaks
// real gRPC.
#ifndef COHORT_CLIENT_RENDEZVOUS_TESTING_FAKE_COORDINATOR_H_
#define COHORT_CLIENT_RENDEZVOUS_TESTING_FAKE_COORDINATOR_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/threads/mutex.h"
#include "cohort/v1/admin.grpc.pb.h"
#include "cohort/v1/group.grpc.pb.h"
#include "cohort/v1/messaging.grpc.pb.h"
#include "grpcpp/server.h"

namespace cohort::client {

// A call that arrived.
struct SeenCall {
  std::string method;
  v1::Scope scope;
  absl::Duration wait;       // of requests that have one
  absl::Duration time_left;  // until the gRPC deadline
  int64_t number = 0;        // of rounds
  int64_t offset = 0;        // of downloads, and from_revision of watches
  std::string object;        // of sends, when it is small
};

// Thread-safe.
class FakeCoordinator {
 public:
  // Listens on a free port of the loopback.
  FakeCoordinator();
  ~FakeCoordinator();

  std::string address() const;
  // Breaks all connections. Start listens on the same port again.
  void Stop();
  void Start();

  // --- The script.
  // The next calls of `method` are refused with these, one each.
  void FailNext(const std::string& method, std::vector<grpc::Status> statuses);
  // Answers of the next rounds, one each; then RELEASED.
  void EndRounds(std::vector<v1::RoundResult> results);
  // Calls of `method` are parked while this holds (or until they are cancelled).
  void Hold(const std::string& method, bool hold);
  void set_lease(absl::Duration lease);
  // As in the answer to Join; 0: it does not say.
  void set_max_inline_bytes(int64_t max_inline_bytes);
  // Whether GetGroup says that the group of the last join is complete.
  void set_complete(bool complete);
  // For members that join from now on.
  void set_generation(int64_t generation);
  // All receives and rounds come with this receipt.
  void set_receipt(int64_t receipt);
  void set_missing(const std::string& operation, const v1::MissingReport& missing);
  // Downloads: the byte at this offset is wrong; the first stream breaks after this many bytes.
  void DamageDownloads(int64_t offset);
  void BreakFirstDownloadAfter(int64_t bytes);
  // Forgets all uploads.
  void DropBlobs();
  // Names its start to the watches that open from now on.
  void set_incarnation(const std::string& incarnation);
  // One without a kind is a bookmark: watches get its revision alone.
  void PublishEvent(v1::GroupEvent event);
  // Asks the members that watch for their reports, as who-is-missing does.
  void AskForReport();

  // --- The calls so far.
  std::vector<SeenCall> Seen(const std::string& method) const;
  // Waits until `count` calls of `method` arrived; false after ten seconds.
  bool AwaitSeen(const std::string& method, size_t count) const;
  // Waits until `count` watches stand; false after ten seconds.
  bool AwaitOpenWatches(int count) const;

 private:
  class Group;
  class Messaging;
  class Admin;

  template <typename Request>
  grpc::Status Enter(const std::string& method, grpc::ServerContext* context,
                     const Request& request);
  grpc::Status Note(grpc::ServerContext* context, SeenCall call);
  v1::RoundResult NextResult(int64_t number);
  template <typename Request, typename Response>
  grpc::Status Round(const std::string& method, grpc::ServerContext* context, Request* request,
                     Response* response);
  bool HasBlob(const v1::Payload& payload) const;

  const std::unique_ptr<Group> group_;
  const std::unique_ptr<Messaging> messaging_;
  const std::unique_ptr<Admin> admin_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;

  mutable Mutex mutex_;
  std::vector<SeenCall> seen_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::deque<grpc::Status>> failures_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::RoundResult> results_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, bool> held_ ABSL_GUARDED_BY(mutex_);
  absl::Duration lease_ ABSL_GUARDED_BY(mutex_) = absl::Seconds(30);
  int64_t max_inline_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t generation_ ABSL_GUARDED_BY(mutex_) = 1;
  bool complete_ ABSL_GUARDED_BY(mutex_) = false;
  v1::Member joined_ ABSL_GUARDED_BY(mutex_);
  int64_t receipt_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::OpenWait open_wait_ ABSL_GUARDED_BY(mutex_);
  int64_t damaged_ ABSL_GUARDED_BY(mutex_) = -1;
  int64_t break_after_ ABSL_GUARDED_BY(mutex_) = -1;
  std::map<int64_t, std::string> blobs_ ABSL_GUARDED_BY(mutex_);
  int64_t last_blob_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<v1::GroupEvent> events_ ABSL_GUARDED_BY(mutex_);
  std::string incarnation_ ABSL_GUARDED_BY(mutex_) = "1";
  int reports_asked_ ABSL_GUARDED_BY(mutex_) = 0;
  int open_watches_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_TESTING_FAKE_COORDINATOR_H_
