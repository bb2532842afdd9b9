// Drives a Core in tests: sets the time, makes calls as members, keeps replies and a model journal.
#ifndef COHORT_COORDINATOR_CORE_TESTING_CORE_HARNESS_H_
#define COHORT_COORDINATOR_CORE_TESTING_CORE_HARNESS_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/core.h"

namespace cohort::coordinator {

class CoreHarness {
 public:
  // A member's side of the wire.
  struct TestMember {
    std::string name;
    int64_t incarnation = 0;
    Id128 session;
    int rank = -1;
    int world_size = 0;
    int64_t generation = 0;
    std::shared_ptr<const std::string> identity;
  };

  explicit CoreHarness(const Limits& limits = Limits{})
      : limits_(limits), core_(std::make_unique<Core>(limits, boot_)) {}

  Instant now() const { return now_; }
  Core& core() { return *core_; }
  GroupKey key() const { return GroupKey{"default", "g"}; }

  static GroupSpec Fixed(int world_size) {
    GroupSpec spec;
    spec.min_members = spec.max_members = world_size;
    return spec;
  }

  // --- Input.
  CallId Make(CallBody body, Caller caller, absl::Duration wait = absl::Seconds(30)) {
    Call call;
    call.id = ++last_call_;
    call.caller = std::move(caller);
    if (call.caller.key.tenant.empty()) call.caller.key = key();
    call.wait = wait;
    call.entropy = Id128{0x5e55, last_call_};
    call.body = std::move(body);
    const CallId id = call.id;
    Effects effects;
    core_->Handle(now_, std::move(call), effects);
    Take(effects);
    return id;
  }
  CallId As(const TestMember& member, CallBody body, absl::Duration wait = absl::Seconds(30),
            Id128 operation = {}, std::vector<int64_t> acknowledged = {}) {
    return Make(
        std::move(body),
        Caller{key(), member.generation, member.session, operation, std::move(acknowledged),
               member.identity},
        wait);
  }
  CallId Join(TestMember& member, const GroupSpec& spec, std::optional<int> rank,
              absl::Duration wait = absl::Seconds(300)) {
    JoinCall join;
    join.member = member.name;
    join.incarnation = member.incarnation;
    join.rank = rank;
    join.host = absl::StrCat("host-", member.name);
    join.spec = spec;
    return Make(join, Caller{key(), 0, member.session, {}, {}, member.identity}, wait);
  }
  // Takes over the answer to a join.
  bool JoinAnswered(TestMember& member, CallId id) {
    const Reply* reply = Find(id);
    if (reply == nullptr || !reply->status.ok()) return false;
    const auto& join = std::get<JoinReply>(reply->body);
    if (join.timed_out) return false;
    member.session = join.session;
    member.rank = join.rank;
    member.world_size = join.world_size;
    member.generation = join.generation;
    return true;
  }
  // A complete group of w0, w1, ... in order of rank.
  std::vector<TestMember> Form(int world_size) { return Form(Fixed(world_size)); }
  std::vector<TestMember> Form(const GroupSpec& spec) {
    std::vector<TestMember> members(spec.max_members);
    std::vector<CallId> joins;
    for (int rank = 0; rank < spec.max_members; ++rank) {
      members[rank].name = absl::StrCat("w", rank);
      members[rank].incarnation = 100 + rank;
      joins.push_back(Join(members[rank], spec, rank));
    }
    for (int rank = 0; rank < spec.max_members; ++rank) JoinAnswered(members[rank], joins[rank]);
    return members;
  }
  // The same members in the generation after a break.
  void Reform(std::vector<TestMember>& members, const GroupSpec& spec) {
    std::vector<CallId> joins;
    for (TestMember& member : members) joins.push_back(Join(member, spec, std::nullopt));
    for (size_t i = 0; i < members.size(); ++i) JoinAnswered(members[i], joins[i]);
  }

  void Cancel(CallId id) {
    Effects effects;
    core_->Cancel(now_, id, effects);
    Take(effects);
  }
  // Time passes, tick by tick.
  void Advance(absl::Duration duration) {
    const Instant end = now_ + duration;
    while (core_->NextTick() <= end) {
      now_ = std::max(now_, core_->NextTick());
      Tick();
    }
    now_ = end;
    Tick();
  }
  void Tick() {
    Effects effects;
    core_->Tick(now_, effects);
    Take(effects);
  }
  // Keeps all of them alive while time passes.
  void AdvanceAlive(absl::Duration duration, const std::vector<TestMember>& alive) {
    for (absl::Duration passed; passed < duration; passed += absl::Seconds(5)) {
      for (const TestMember& member : alive) As(member, KeepAliveCall{});
      Advance(std::min(absl::Seconds(5), duration - passed));
    }
  }
  // kill -9 of the coordinator, and its start from the journal.
  void Restart() {
    core_ = std::make_unique<Core>(limits_, ++boot_);
    std::vector<Record> rows;
    for (const auto& [id, record] : journal_) rows.push_back(record);
    core_->Restore(now_, rows);
    replies_.clear();
  }
  size_t journal_rows() const { return journal_.size(); }
  // Entries of late ranks in the rows of all round names.
  size_t journal_row_late_count() const {
    size_t count = 0;
    for (const auto& [id, record] : journal_) {
      const auto* name = std::get_if<RoundNameRecord>(&*record.value);
      if (name != nullptr) count += name->late.size();
    }
    return count;
  }

  // --- Output.
  const Reply* Find(CallId id) const {
    auto it = replies_.find(id);
    return it == replies_.end() ? nullptr : &it->second;
  }
  bool Parked(CallId id) const { return Find(id) == nullptr; }
  absl::Status StatusOf(CallId id) const {
    const Reply* reply = Find(id);
    return reply == nullptr ? absl::UnknownError("parked") : reply->status;
  }
  template <typename Body>
  const Body* Get(CallId id) const {
    const Reply* reply = Find(id);
    return reply == nullptr ? nullptr : std::get_if<Body>(&reply->body);
  }
  const RoundEnd* Round(CallId id) const {
    const auto* reply = Get<RoundReply>(id);
    return reply == nullptr ? nullptr : reply->end.get();
  }
  // Payloads in flight count as held; a test that looks at bytes lets go of the replies first.
  void ForgetReplies() { replies_.clear(); }

 private:
  void Take(Effects& effects) {
    for (Record& record : effects.records) {
      const auto prefix = std::make_tuple(record.key.tenant, record.key.group, record.kind);
      if (record.whole_kind) {
        for (auto it = journal_.begin(); it != journal_.end();) {
          const bool same = std::make_tuple(std::get<0>(it->first), std::get<1>(it->first),
                                            std::get<2>(it->first)) == prefix;
          it = same ? journal_.erase(it) : std::next(it);
        }
        continue;
      }
      const auto id = std::tuple_cat(prefix, std::make_tuple(record.id));
      if (record.value.has_value()) {
        if (auto* object = std::get_if<ObjectRecord>(&*record.value)) {
          object->payload = Payload(object->payload.bytes(), nullptr);  // a file holds no references
        } else if (auto* end = std::get_if<RoundEndRecord>(&*record.value)) {
          for (Payload& value : end->values) value = Payload(value.bytes(), nullptr);
        } else if (auto* row = std::get_if<KeyRecord>(&*record.value)) {
          row->value = Payload(row->value.bytes(), nullptr);
        } else if (auto* item = std::get_if<QueueItemRecord>(&*record.value)) {
          item->value = Payload(item->value.bytes(), nullptr);
        }
        journal_[id] = std::move(record);
      } else {
        journal_.erase(id);
      }
    }
    for (Reply& reply : effects.replies) {
      const CallId id = reply.id;
      twice_ = twice_ || !replies_.emplace(id, std::move(reply)).second;
    }
  }

  const Limits limits_;
  int64_t boot_ = 1;
  Instant now_ = absl::UnixEpoch() + absl::Hours(1000);
  std::unique_ptr<Core> core_;
  std::map<std::tuple<std::string, std::string, RecordKind, std::string>, Record> journal_;
  std::map<CallId, Reply> replies_;
  CallId last_call_ = 0;
  bool twice_ = false;

 public:
  bool answered_twice() const { return twice_; }
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_TESTING_CORE_HARNESS_H_
