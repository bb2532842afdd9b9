#include "coordinator/core/testing/simulated_member.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/incarnation_hash.h"

namespace cohort::coordinator {
namespace {

constexpr absl::Duration kMargin = absl::Seconds(5);

}  // namespace

SimulatedMember::SimulatedMember(SimulatedWorld& world, InvariantChecker& checker, MemberPlan plan)
    : world_(world), checker_(checker), random_(world.random()), plan_(std::move(plan)) {}

void SimulatedMember::Later(absl::Duration delay, std::function<void()> action) {
  world_.After(delay,
               [this, process_number = process_number_, action = std::move(action)]() mutable {
                 if (process_number != process_number_) return;
                 if (paused_until_ > world_.now()) {
                   Later(paused_until_ - world_.now(), std::move(action));
                 } else {
                   action();
                 }
               });
}

// --- Calls.

void SimulatedMember::Begin(CallSlot slot, CallBody body, absl::Duration wait,
                            std::function<void(const Reply*)> done) {
  const Key key = ++last_key_;
  Operation& operation = open_[key];
  operation.slot = slot;
  operation.body = std::move(body);
  operation.wait = wait;
  operation.deadline = world_.now() + wait + kMargin;
  operation.done = std::move(done);
  Caller& caller = operation.caller;
  caller.key = GroupKey{"t", plan_.group};
  caller.operation_id = random_.Id();
  if (slot == kTenantStore) {
    caller.key.group.clear();
    caller.acknowledged = std::exchange(store_receipts_, {});
    caller.abandoned = std::exchange(abandoned_pops_, {});
  } else if (!std::holds_alternative<JoinCall>(operation.body)) {
    caller.session = session_;
    caller.generation = generation_;
    caller.acknowledged = std::exchange(receipts_, {});
  }
  Try(key);
}

void SimulatedMember::Try(Key key) {
  auto it = open_.find(key);
  if (it == open_.end()) return;
  Operation& operation = it->second;
  Call call;
  call.caller = operation.caller;
  call.body = operation.body;
  call.wait = std::min(operation.wait,
                       std::max(operation.deadline - kMargin - world_.now(), absl::ZeroDuration()));
  operation.attempt = world_.Send(
      std::move(call), [this, key, process_number = process_number_](const Reply* reply) {
        if (process_number != process_number_) return;
        if (paused_until_ <= world_.now()) {
          OnAnswer(key, reply);
          return;
        }
        // The reply stays in the socket until the member reads it.
        const auto kept = reply == nullptr ? nullptr : std::make_shared<const Reply>(*reply);
        Later(paused_until_ - world_.now(), [this, key, kept] { OnAnswer(key, kept.get()); });
      });
}

void SimulatedMember::OnAnswer(Key key, const Reply* reply) {
  auto it = open_.find(key);
  if (it == open_.end()) return;
  const bool again =
      reply == nullptr || absl::IsUnavailable(reply->status) || absl::IsCancelled(reply->status);
  if (again && world_.now() < it->second.deadline) {
    Later(random_.Between(absl::Milliseconds(5), absl::Milliseconds(200)),
          [this, key] { Try(key); });
    return;
  }
  const Operation operation = std::move(it->second);
  open_.erase(it);
  const bool failed = again || !reply->status.ok();
  const bool present =
      operation.caller.session == session_ && operation.caller.generation == generation_;
  if (failed && (present || operation.slot == kTenantStore)) {
    // They go with another call.
    auto& receipts = operation.slot == kTenantStore ? store_receipts_ : receipts_;
    receipts.insert(receipts.begin(), operation.caller.acknowledged.begin(),
                    operation.caller.acknowledged.end());
    abandoned_pops_.insert(abandoned_pops_.begin(), operation.caller.abandoned.begin(),
                           operation.caller.abandoned.end());
  }
  if (again && operation.slot == kTenantStore &&
      std::holds_alternative<QueuePopCall>(operation.body)) {
    abandoned_pops_.push_back(operation.caller.operation_id);
  }
  // An answer to a lease renewal about an earlier generation has no effect.
  const bool outdated = !present && (operation.slot == kLease || operation.slot == kView);
  operation.done(again || outdated ? nullptr : reply);
}

bool SimulatedMember::Over(const Reply& reply) {
  if (!absl::IsAborted(reply.status) && !absl::IsNotFound(reply.status)) return false;
  broken_ = true;
  return true;
}

void SimulatedMember::Unexpected(const CallBody& body, const Reply& reply) {
  Call call;
  call.body = body;
  world_.Fail(absl::StrCat(plan_.name, " of ", plan_.group, " did not expect of ", CallName(call),
                           ": ", reply.status.ToString()));
}

// --- From the start of the process to its end.

void SimulatedMember::Start() {
  ++process_number_;
  alive_ = true;
  finishing_ = is_joined_ = broken_ = false;
  paused_until_ = absl::InfinitePast();
  incarnation_ = static_cast<int64_t>(random_.Next() >> 2) + 1;
  session_ = Id128{};
  generation_ = 0;
  attached_boot_ = 0;
  receipts_.clear();
  store_receipts_.clear();
  abandoned_pops_.clear();
  clock_speed_ = random_.Chance(0.1) ? 1.25 : 1.0 + random_.Below(10) / 100.0;
  stream_ = static_cast<int64_t>(random_.Next() >> 2);
  Later(random_.Between(absl::ZeroDuration(), absl::Milliseconds(500)), [this] { Join(); });
  Later(plan_.spec.lease / 3, [this] { RenewLease(); });
  Later(absl::Milliseconds(200), [this] { StoreStep(); });
}

void SimulatedMember::Crash() {
  if (!alive_) return;
  alive_ = false;
  ++process_number_;
  const bool was_joined = is_joined_ && !broken_;
  for (auto& [key, operation] : open_) {
    world_.Abandon(operation.attempt);
    // The coordinator may have executed the operation or not.
    operation.done(nullptr);
    checker_.PopsLost(operation.caller.abandoned.size());
  }
  checker_.PopsLost(abandoned_pops_.size());
  open_.clear();
  if (session_.empty()) return;
  Call closed;
  closed.caller.key = GroupKey{"t", plan_.group};
  closed.caller.session = session_;
  closed.body = AttachCall{stream_, true};
  // Copies of its last calls may still be under way where the network doubles them.
  const bool certain = was_joined && world_.faults().duplicate == 0;
  world_.After(random_.Between(absl::ZeroDuration(), absl::Milliseconds(50)),
               [this, closed, certain] {
                 world_.Ask(closed, [this, certain](const Reply* reply) {
                   if (certain && reply != nullptr && attached_boot_ == world_.boot())
                     CheckMissed(attached_boot_);
                 });
               });
}

void SimulatedMember::CheckMissed(int64_t boot) {
  const absl::Duration allowed = plan_.spec.disconnect_grace + absl::Milliseconds(50);
  world_.After(allowed, [this, boot, process_number = process_number_, hash = IncarnationHash(incarnation_)] {
    if (boot != world_.boot() || process_number != process_number_ || !world_.up()) return;
    Call call;
    call.caller.key = GroupKey{"t", plan_.group};
    call.body = GetGroupCall{};
    world_.Ask(call, [this, hash](const Reply* reply) {
      if (reply == nullptr || !reply->status.ok()) return;
      for (const MemberInfo& member : std::get<GetGroupReply>(reply->body).group.members) {
        const bool live = member.state != MemberState::kLost && member.state != MemberState::kLeft;
        if (member.name == plan_.name && member.incarnation_hash == hash && live) {
          world_.Fail(
              absl::StrCat("R11: the streams of ", plan_.name, " broke, and it counts as live"));
        }
      }
    });
  });
}

void SimulatedMember::Pause(absl::Duration how_long) {
  paused_until_ = std::max(paused_until_, world_.now() + how_long);
}

void SimulatedMember::Finish() {
  finishing_ = true;
  if (!alive_) return;
  if (open_.empty()) Leave();
}

void SimulatedMember::NextStep() {
  Later(random_.Between(absl::Milliseconds(1), plan_.pause * 2), [this] { Step(); });
}

void SimulatedMember::Step() {
  if (finishing_) {
    Leave();
    return;
  }
  ++progress_;
  if (resting_) return NextStep();
  if (!is_joined_) {
    Join();
    return;
  }
  if (broken_) {
    // The survivors either join again, or agree on a view without the lost.
    const int way = calm_ ? 9 : random_.Below(10);
    if (way == 0) return AgreeAlive();
    if (way == 1) return ProposeView();
    Join();
    return;
  }
  if (!calm_ && random_.Chance(plan_.disturb)) {
    switch (random_.Below(6)) {
      case 0:
        return ProposeView();
      case 1:
        return AgreeAlive();
      case 2:
        return ReportError();
      case 3:
        return CancelRound();
      case 4:
        return Leave();
      default:
        return UniqueIds();
    }
  }
  if (world_size_ < plan_.spec.max_members && random_.Chance(0.1)) return Grow();
  switch (random_.Below(8)) {
    case 0:
    case 1:
      return SendObject();
    case 2:
      return ReceiveObject();
    case 3:
      return UniqueIds();
    default:
      return EnterRound();
  }
}

void SimulatedMember::Join() {
  JoinCall join;
  join.member = plan_.name;
  join.incarnation = incarnation_;
  join.host = "host";
  join.spec = plan_.spec;
  const absl::Duration wait = random_.Chance(0.2) ? absl::Milliseconds(300) : absl::Seconds(20);
  Begin(kProgram, std::move(join), wait, [this](const Reply* reply) {
    if (alive_) OnJoin(reply);
  });
}

void SimulatedMember::OnJoin(const Reply* reply) {
  if (reply == nullptr) return NextStep();
  if (!reply->status.ok()) {
    if (absl::IsAborted(reply->status)) {
      // Replaced, or lost: only a new process can come back.
      if (reply->context != nullptr && reply->context->cause.kind == CauseKind::kReplaced) {
        Over(*reply);
      }
      incarnation_ = static_cast<int64_t>(random_.Next() >> 2) + 1;
    } else if (!absl::IsAlreadyExists(reply->status) && !absl::IsNotFound(reply->status) &&
               !absl::IsResourceExhausted(reply->status)) {
      Unexpected(JoinCall{}, *reply);
    }
    is_joined_ = false;
    return NextStep();
  }
  const auto& joined = std::get<JoinReply>(reply->body);
  if (joined.timed_out) {
    is_joined_ = false;
    session_ = joined.session;
    generation_ = 0;
    return NextStep();
  }
  Adopt(joined.generation, joined.session, joined.rank, joined.world_size);
  // A new stream first, then the end of the one it follows.
  Call attach;
  attach.caller.key = GroupKey{"t", plan_.group};
  attach.caller.session = session_;
  attach.body = AttachCall{++stream_};
  world_.Ask(attach, [this](const Reply* attached) {
    if (attached != nullptr) attached_boot_ = world_.boot();
  });
  attach.body = AttachCall{stream_ - 1, true};
  world_.Ask(attach, [](const Reply*) {});
  NextStep();
}

void SimulatedMember::Adopt(int64_t generation, const Id128& session, int rank, int world_size) {
  const bool is_new = generation != generation_ || session != session_;
  is_joined_ = true;
  broken_ = false;
  if (!is_new) return;
  generation_ = generation;
  session_ = session;
  rank_ = rank;
  world_size_ = world_size;
  receipts_.clear();
  next_number_.clear();
  sent_.clear();
  published_.clear();
  checker_.OnJoined(plan_.group, plan_.name, generation, session, rank, world_size);
}

void SimulatedMember::RenewLease() {
  const auto again = [this] {
    Later(plan_.spec.lease / 3 * (0.9 + random_.Below(20) / 100.0) * clock_speed_,
          [this] { RenewLease(); });
  };
  if (!alive_ || session_.empty()) return again();
  Begin(kLease, KeepAliveCall{progress_, "step"}, absl::ZeroDuration(),
        [this, again](const Reply* reply) {
          if (!alive_) return;
          again();
          if (reply == nullptr) return;
          if (!reply->status.ok()) {
            if (!Over(*reply)) Unexpected(KeepAliveCall{}, *reply);
            return;
          }
          const auto& kept = std::get<KeepAliveReply>(reply->body);
          if (!is_joined_) return;
          if (kept.generation > generation_ || kept.state == GroupState::kBroken) broken_ = true;
          if (kept.proposal.has_value()) AckView(*kept.proposal);
        });
}

void SimulatedMember::Leave() {
  if (!is_joined_ && session_.empty()) {
    if (finishing_) return;
    return NextStep();
  }
  Begin(kProgram, LeaveCall{"done"}, absl::ZeroDuration(), [this](const Reply* reply) {
    if (!alive_) return;
    const bool answered = reply != nullptr;
    is_joined_ = false;
    if (answered) session_ = Id128{};
    if (!finishing_) {
      // The process ends, and another one replaces it.
      Crash();
      world_.After(random_.Between(absl::Milliseconds(50), absl::Seconds(1)), [this] {
        if (!alive_ && !finishing_) Start();
      });
    } else if (!answered) {
      NextStep();
    }
  });
}

}  // namespace cohort::coordinator
