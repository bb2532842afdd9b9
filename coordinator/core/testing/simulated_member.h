// A member that behaves towards the coordinator like one of the client library. It joins and keeps
// its lease. It repeats a call without an answer under the same operation id and round number. It
// acknowledges receipts with its next call, and joins the next generation when its own has ended.
// Its other calls are random.
//
// It has slots with one call at a time each: its program, the store, its lease, and views to
// acknowledge.
#ifndef COHORT_COORDINATOR_CORE_TESTING_SIMULATED_MEMBER_H_
#define COHORT_COORDINATOR_CORE_TESTING_SIMULATED_MEMBER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/interface/call.h"
#include "coordinator/core/interface/reply.h"
#include "coordinator/core/testing/invariant_checker.h"
#include "coordinator/core/testing/round_script.h"
#include "coordinator/core/testing/simulated_world.h"

namespace cohort::coordinator {

struct MemberPlan {
  std::string group;
  std::string name;
  GroupSpec spec;
  // The share of a member's steps that disturb the other members.
  double disturb = 0.02;
  absl::Duration pause = absl::Milliseconds(30);  // between two steps, about
};

class SimulatedMember {
 public:
  SimulatedMember(SimulatedWorld& world, InvariantChecker& checker, MemberPlan plan);
  SimulatedMember(const SimulatedMember&) = delete;
  SimulatedMember& operator=(const SimulatedMember&) = delete;

  // A new process starts.
  void Start();
  // Dies silently; its connections break.
  void Crash();
  // Stops (SIGSTOP): it neither sends nor receives, and its connections stay.
  void Pause(absl::Duration how_long);
  // From now on it only stays a member and works with the others, without disturbing them.
  void Calm() { calm_ = true; }
  // From now on it only keeps its lease.
  void Rest() { resting_ = true; }
  // Begins no more calls, and leaves.
  void Finish();

  bool alive() const { return alive_; }
  bool is_joined() const { return alive_ && is_joined_ && !broken_; }
  bool gone() const { return !alive_ || (finishing_ && !is_joined_ && open_.empty()); }
  int64_t generation() const { return generation_; }
  const MemberPlan& plan() const { return plan_; }

 private:
  enum CallSlot { kProgram, kTenantStore, kGroupStore, kLease, kView };
  struct Operation {
    CallSlot slot = kProgram;
    CallBody body;
    Caller caller;
    absl::Duration wait;
    Instant deadline;
    int64_t attempt = 0;
    std::function<void(const Reply*)> done;  // null: the outcome is not known
  };
  using Key = int64_t;

  // Runs `action` after `delay`, later when paused, never in another process.
  void Later(absl::Duration delay, std::function<void()> action);
  void Begin(CallSlot slot, CallBody body, absl::Duration wait,
             std::function<void(const Reply*)> done);
  void Try(Key key);
  void OnAnswer(Key key, const Reply* reply);
  // Whether the answer says that this member's generation or process is over; remembers it.
  bool Over(const Reply& reply);

  // --- simulated_member.cc: from start to end of the process
  void Step();
  void NextStep();
  void Join();
  void OnJoin(const Reply* reply);
  void Adopt(int64_t generation, const Id128& session, int rank, int world_size);
  void RenewLease();
  // Its connections broke: it must not count as live for longer than the grace.
  void CheckMissed(int64_t boot);
  void AckView(const ViewProposal& proposal);
  void ProposeView();
  // Adds the candidates that wait, if there are any.
  void Grow();
  void Propose(ProposeViewCall propose);
  void AgreeAlive();
  void Leave();
  void Unexpected(const CallBody& body, const Reply& reply);

  // --- simulated_member_program.cc: its random calls
  void EnterRound();
  void CancelRound();
  void SendObject();
  void ReceiveObject();
  void UniqueIds();
  void ReportError();
  void StoreStep();
  void UseKey(bool shared);
  void UseQueue();
  void UseGroupStore();

  SimulatedWorld& world_;
  InvariantChecker& checker_;
  SimulationRandom& random_;
  const MemberPlan plan_;
  bool calm_ = false;
  bool resting_ = false;

  int64_t process_number_ = 0;
  bool alive_ = false;
  bool finishing_ = false;
  Instant paused_until_;
  double clock_speed_ = 1;

  int64_t incarnation_ = 0;
  Id128 session_;
  bool is_joined_ = false;
  bool broken_ = false;
  int64_t generation_ = 0;
  int rank_ = -1;
  int world_size_ = 0;
  int64_t stream_ = 0;
  int64_t attached_boot_ = 0;

  std::map<Key, Operation> open_;
  Key last_key_ = 0;
  std::vector<int64_t> receipts_;        // of this generation
  std::vector<int64_t> store_receipts_;  // of the tenant's store
  std::vector<Id128> abandoned_pops_;    // of the tenant's store
  std::map<std::string, int64_t> next_number_;
  std::map<std::pair<int, std::string>, int64_t> sent_;
  std::set<std::string> published_;
  int64_t progress_ = 0;
  std::map<std::string, int64_t> key_revisions_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_TESTING_SIMULATED_MEMBER_H_
