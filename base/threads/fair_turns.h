// Shares the thread of an event loop between clients, such as tenants or addresses.
//
// A client that has much to do must not keep the others waiting. So work waits for its turn, and
// the client that has used the least processor time goes next. A turn for which no other client
// waits is free. A client that comes back after a pause has no credit for it.
//
//   FairTurns turns(loop);
//   const std::shared_ptr<FairTurns::Client> client = turns.ClientOf("team-a");
//   turns.Add(client, connection);   // connection->OnTurn() runs soon
#ifndef COHORT_BASE_THREADS_FAIR_TURNS_H_
#define COHORT_BASE_THREADS_FAIR_TURNS_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/threads/event_loop.h"
#include "base/threads/thread_time.h"

namespace cohort {

// Only the loop's thread uses it.
class FairTurns {
 public:
  class Work {
   public:
    virtual ~Work() = default;
    // Works for a millisecond or so; if more is left to do, it is added again.
    virtual void OnTurn() = 0;
  };
  // One that shares the thread. Any thread may destroy it.
  class Client {
   private:
    friend class FairTurns;
    absl::Duration used_;
    bool waits_ = false;  // or has its turn
    std::deque<std::shared_ptr<Work>> work_;
  };

  // The thread of `loop` has ended when this is destroyed.
  // `thread_time`: of the loop's thread.
  explicit FairTurns(EventLoop& loop, std::function<absl::Duration()> thread_time = ThreadTime)
      : loop_(loop), thread_time_(std::move(thread_time)) {}
  // Work that has had no turn is dropped, although it may own its client.
  ~FairTurns();
  FairTurns(const FairTurns&) = delete;
  FairTurns& operator=(const FairTurns&) = delete;

  // The same client for the same name, as long as it has an owner.
  std::shared_ptr<Client> ClientOf(const std::string& name);
  void Add(const std::shared_ptr<Client>& client, std::shared_ptr<Work> work);

 private:
  void Run();

  EventLoop& loop_;
  const std::function<absl::Duration()> thread_time_;
  absl::flat_hash_map<std::string, std::weak_ptr<Client>> clients_;
  size_t sweep_at_ = 64;
  // Those with work, by the time that they have used.
  std::multimap<absl::Duration, std::shared_ptr<Client>> waiting_;
  absl::Duration least_used_;  // of the client whose turn it was last, at its begin
  bool posted_ = false;
};

}  // namespace cohort

#endif  // COHORT_BASE_THREADS_FAIR_TURNS_H_
