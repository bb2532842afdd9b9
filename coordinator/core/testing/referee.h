// What must hold in every simulated run. The referee sees all steps of the coordinator and all that
// members were told, keeps a model of what that means, and fails the run at the first
// contradiction:
//
//   R1   The generation of a group name never goes down: not over restarts, nor over re-creation.
//   R2   A (group, generation, rank) belongs to one life, all who are told a generation are told
//        the same size, and the ranks of an active group are all taken.
//   R3   No good answer goes to a session after its fence, nor to a call of a past generation.
//   R4   A symmetric round is released to all its participants in one step, with what they brought.
//   R5   Who was in a released round hears RELEASED, however late and often it asks.
//   R6   Objects of (source, destination, tag): in order, none twice, none lost but those told so.
//   R7   Consumed means handed out.
//   R8   A repeat gets the first answer; revisions of a namespace only grow.
//   R9   A queue item goes to one operation; what was pushed comes out.
//   R10  Counters hold exactly what was added.
//   R11  A live member was heard within its lease and a granule; one whose last stream broke,
//        within its grace.
//   R12  Events come in order, each once.
//   R13  Agreements on who is alive are the same for all.
//   R14  A life of a member is refused as an older one only after another one was taken in since.
//        The order is the one in which the group took them in: a slow network may bring an older
//        life after a newer one, and nobody can tell.
#ifndef COHORT_COORDINATOR_CORE_TESTING_REFEREE_H_
#define COHORT_COORDINATOR_CORE_TESTING_REFEREE_H_

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

class Referee {
 public:
  explicit Referee(SimulatedWorld& world);
  Referee(const Referee&) = delete;
  Referee& operator=(const Referee&) = delete;

  // Watches the events of a group, and looks at it now and then.
  void Observe(const std::string& group);
  // Nothing is to be seen any more.
  void Rest() { observed_.clear(); }
  // The coordinator is a new process: its watches are gone.
  void OnStart();

  // --- what members were told
  void Seated(const std::string& group, const std::string& member, int64_t generation,
              const Id128& session, int rank, int world_size);
  void RoundEnded(const std::string& group, int64_t generation, const std::string& name,
                  int64_t number, int rank, const RoundReply& reply);
  void AgreedAlive(const std::string& group, int64_t generation, int64_t number,
                   const RoundEnd& end);

  // An object's place in its stream: the sender numbers what it sends, from 1.
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
  // A receive of this box ended without an answer, or told of `lost` objects: so many may be
  // missing.
  void MayMiss(const std::string& group, int64_t generation, int destination,
               const std::string& tag, int64_t lost);

  void Pushed(const std::string& value) { pushed_.insert(value); }
  void Popped(const std::string& value, const Id128& operation);
  void PopAbandoned() { ++abandoned_pops_; }
  void Added(int64_t delta) { added_ += delta; }
  void AddAbandoned(int64_t delta) { maybe_added_ += delta; }
  void KeySeen(const std::string& key, KeyOperation operation);
  // An operation of unknown outcome: the key's history cannot be judged.
  void KeyUnknown(const std::string& key) { unknown_keys_.insert(key); }

  // --- at the end
  void CheckQueueDrained();
  void CheckCounter(int64_t value);
  void CheckHistories();

  // Of its present generation; those whose answer nobody has.
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
  void CheckStanding(const Call& call, const Reply& reply);
  void CheckLives(const StepView& view);
  void CheckRelease(const StepView& view);
  // Whether the operation was answered before; then the answer must be the same.
  bool IsRepeat(const Call& call, int64_t first, int64_t second);
  void CheckRevision(const Call& call, int64_t revision, bool moved);
  void NoteGeneration(const std::string& group, int64_t generation, const char* where);
  void NoteSession(const std::string& group, const std::string& member, const Id128& session);
  void Watch(const std::string& group, int64_t from);
  void Look(const std::string& group);
  void CheckGroup(const GroupInfo& info);
  void Fail(std::string what) { world_.Fail(std::move(what)); }

  SimulatedWorld& world_;
  std::vector<std::string> observed_;

  std::map<std::string, int64_t> generation_;
  std::map<std::pair<std::string, int64_t>, int> sizes_;
  std::map<std::tuple<std::string, int64_t, int>, Id128> seats_;
  std::map<std::tuple<std::string, int64_t, Id128>, int> ranks_;
  std::map<GroupMember, Id128> sessions_;
  std::set<Id128> fenced_;
  std::map<GroupMember, std::set<int64_t>> lives_;  // that the group took in
  std::map<GroupMember, int64_t> last_life_;        // ... the last one
  std::map<std::string, int64_t> event_revision_;

  std::set<RoundId> released_;
  std::map<RoundId, std::pair<bool, int64_t>> told_;  // released, vote
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
  int64_t abandoned_pops_ = 0;
  int64_t added_ = 0;
  int64_t maybe_added_ = 0;
  std::map<std::string, std::vector<KeyOperation>> histories_;
  std::set<std::string> unknown_keys_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_TESTING_REFEREE_H_
