// The invariants of every simulated run. The checker sees all steps of the coordinator and all
// answers to members. It keeps a model of them and fails the run at the first contradiction:
//
//   R1   The generation of a group name never decreases, also over restarts and re-creation.
//   R2   A (group, generation, rank) belongs to one incarnation, all members of a generation get
//        the same size, and the ranks of an active group are all taken.
//   R3   No OK answer goes to a session after its fence, nor to a call of a past generation.
//   R4   A symmetric round is released to all its participants in one step, with their values.
//   R5   A member of a released round gets RELEASED, however late and often it asks.
//   R6   Objects of (source, destination, tag) arrive in order and at most once; the reader learns
//        of lost ones.
//   R7   A consumed object was handed out.
//   R8   A repeat gets the first answer; revisions of a namespace only grow.
//   R9   A queue item goes to one operation; every item that was pushed is popped.
//   R10  A counter is the sum of its additions.
//   R11  A live member has called within its lease and a granule; one whose last stream broke,
//        within its grace.
//   R12  Events arrive in order, each once.
//   R13  AgreeAlive has the same result for all members.
//   R14  An incarnation is refused as older only after the group has accepted another one since it
//        accepted this one. A slow network may bring an older incarnation after a newer one; the
//        group cannot tell.
#ifndef COHORT_COORDINATOR_CORE_TESTING_INVARIANT_CHECKER_H_
#define COHORT_COORDINATOR_CORE_TESTING_INVARIANT_CHECKER_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/id128.h"
#include "coordinator/core/testing/linearizability.h"
#include "coordinator/core/testing/simulated_world.h"

namespace cohort::coordinator {

class InvariantChecker {
 public:
  explicit InvariantChecker(SimulatedWorld& world);
  InvariantChecker(const InvariantChecker&) = delete;
  InvariantChecker& operator=(const InvariantChecker&) = delete;

  // Watches the events of a group, and reads its state from time to time.
  void Observe(const std::string& group);
  // Stops observing.
  void Rest() { observed_.clear(); }
  // The coordinator has restarted: the watches are gone.
  void OnStart();

  // --- answers to members
  void OnJoined(const std::string& group, const std::string& member, int64_t generation,
                const Id128& session, int rank, int world_size);
  void RoundEnded(const std::string& group, int64_t generation, const std::string& name,
                  int64_t number, int rank, const RoundReply& reply);
  void AgreedAlive(const std::string& group, int64_t generation, int64_t number,
                   const RoundEnd& end);

  // The objects of one sender to one receiver and tag; the sender numbers them from 1.
  struct Stream {
    std::string group;
    int64_t generation = 0;
    int source = 0;
    int destination = 0;
    std::string tag;
    friend bool operator<(const Stream& a, const Stream& b) {
      return std::tie(a.group, a.generation, a.source, a.destination, a.tag) <
             std::tie(b.group, b.generation, b.source, b.destination, b.tag);
    }
  };
  void Sent(const Stream& stream, int64_t count);
  void Received(const Stream& stream, int64_t count, int64_t sequence);
  // A receive of this box ended without an answer, or reported `lost` objects: that many objects
  // may be missing.
  void MayMiss(const std::string& group, int64_t generation, int destination,
               const std::string& tag, int64_t lost);

  void Pushed(const std::string& value) { pushed_.insert(value); }
  void Popped(const std::string& value, const Id128& operation);
  // Pops of a dead process that may have taken an item, which does not come back.
  void PopsLost(size_t count) { lost_pops_ += static_cast<int64_t>(count); }
  void Added(int64_t delta) { added_ += delta; }
  void AddAbandoned(int64_t delta) { maybe_added_ += delta; }
  void KeySeen(const std::string& key, KeyOperation operation);
  // An operation of unknown outcome: the key's history cannot be judged.
  void KeyUnknown(const std::string& key) { unknown_keys_.insert(key); }

  // --- at the end
  void CheckQueueDrained();
  void CheckCounter(int64_t value);
  void CheckHistories();

  // The number of receives in the present generation that ended without an answer.
  int64_t abandoned_receives(const std::string& group) const;

  int64_t rounds_released() const { return rounds_released_; }
  int64_t objects_received() const { return objects_received_; }
  int64_t generations() const { return static_cast<int64_t>(sizes_.size()); }
  int64_t pops() const { return static_cast<int64_t>(popped_.size()); }

 private:
  using GroupMember = std::pair<std::string, std::string>;
  using RoundId = std::tuple<std::string, int64_t, std::string, int64_t>;

  void OnStep(const StepView& view);
  void OnRelease(const Call& call, const Reply& reply);
  void CheckAdmission(const Call& call, const Reply& reply);
  void CheckIncarnations(const StepView& view);
  void CheckRelease(const StepView& view);
  // Whether the operation was answered before; then the answer must be the same.
  bool IsRepeat(const Call& call, int64_t first, int64_t second);
  void CheckRevision(const Call& call, int64_t revision, bool moved);
  void CheckGeneration(const std::string& group, int64_t generation, const char* where);
  void CheckSession(const std::string& group, const std::string& member, const Id128& session);
  void Watch(const std::string& group, int64_t from);
  void Look(const std::string& group);
  void CheckGroup(const GroupInfo& info);
  void Fail(std::string what) { world_.Fail(std::move(what)); }

  SimulatedWorld& world_;
  std::vector<std::string> observed_;

  std::map<std::string, int64_t> generation_;
  std::map<std::pair<std::string, int64_t>, int> sizes_;
  std::map<std::tuple<std::string, int64_t, int>, Id128> sessions_by_rank_;
  std::map<std::tuple<std::string, int64_t, Id128>, int> ranks_;
  std::map<GroupMember, Id128> sessions_;
  std::set<Id128> fenced_;
  std::map<GroupMember, std::set<int64_t>> incarnations_;  // that the group took in
  std::map<GroupMember, int64_t> last_incarnation_;        // ... the last one
  std::map<std::string, int64_t> event_revision_;

  std::set<RoundId> released_;
  std::map<RoundId, std::pair<bool, int64_t>> known_ends_;  // released, vote
  std::map<std::tuple<std::string, int64_t, int64_t>, std::string> alive_;
  int64_t rounds_released_ = 0;

  std::map<Stream, std::set<int64_t>> sent_;                // acknowledged, not yet received
  std::map<Stream, std::pair<int64_t, int64_t>> received_;  // last count, last sequence
  std::map<std::tuple<std::string, int64_t, int, std::string>, std::pair<int64_t, int64_t>> missed_;
  std::set<std::pair<std::string, int64_t>> handed_out_;
  int64_t objects_received_ = 0;

  std::map<Id128, std::tuple<size_t, int64_t, int64_t>> first_answers_;
  std::map<std::string, int64_t> revisions_;
  std::set<std::string> pushed_;
  std::map<std::string, Id128> popped_;
  int64_t lost_pops_ = 0;
  int64_t added_ = 0;
  int64_t maybe_added_ = 0;
  std::map<std::string, std::vector<KeyOperation>> histories_;
  std::set<std::string> unknown_keys_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_TESTING_INVARIANT_CHECKER_H_
