#include "coordinator/core/testing/simulation.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/rank_set.h"
#include "coordinator/core/testing/invariant_checker.h"
#include "coordinator/core/testing/simulated_member.h"
#include "coordinator/core/testing/simulated_world.h"

namespace cohort::coordinator {
namespace {

constexpr absl::Duration kConvergence = absl::Seconds(90);

class Simulation {
 public:
  explicit Simulation(const SimulationOptions& options)
      : options_(options), world_(WorldOptions(options)), checker_(world_) {
    world_.on_start = [this] { checker_.OnStart(); };
  }

  SimulationResult Run() {
    MakeFaults();
    MakeGroups();
    for (auto& member : members_) member->Start();
    Disturb();
    const int64_t until = options_.steps;
    while (world_.steps() < until && world_.RunOne()) {
    }
    Heal();
    if (world_.failure().empty()) CheckConverged();
    if (world_.failure().empty()) Finish();
    SimulationResult result;
    result.failure = world_.failure();
    result.trace = world_.TraceText();
    result.steps = world_.steps();
    result.boots = world_.boot();
    result.generations = checker_.generations();
    result.rounds_released = checker_.rounds_released();
    result.objects_received = checker_.objects_received();
    result.pops = checker_.pops();
    return result;
  }

 private:
  static SimulatedWorld::Options WorldOptions(const SimulationOptions& options) {
    SimulatedWorld::Options world;
    world.seed = options.seed;
    // One run in four has a journal that keeps nothing, and so no restarts.
    world.durable = Mix(options.seed ^ 0x5eed) % 4 != 0;
    world.trace = options.trace;
    world.check_each_step = options.members == 0;
    if (Mix(options.seed ^ 0xc105ed) % 3 == 0) world.limits.max_closed_names = 2;
    if (Mix(options.seed ^ 0x20da5) % 3 == 0) world.limits.max_open_rounds = 64;
    if (Mix(options.seed ^ 0xe1e27) % 4 == 0) world.limits.max_event_log = 16;
    return world;
  }

  void MakeFaults() {
    SimulationRandom& random = world_.random();
    NetworkFaults& faults = world_.faults();
    double badness = random.Below(4) * 0.01;    // of none to a lot
    if (options_.members > 0) badness = 0.002;  // of each message, and a round needs many
    faults.loss = badness;
    faults.duplicate = badness;
    faults.slow = badness / 2;
    faults.connection_break = badness * 2;
  }

  void MakeGroups() {
    SimulationRandom& random = world_.random();
    const int group_count = options_.members > 0 ? 4 : 1 + random.Below(3);
    for (int g = 0; g < group_count; ++g) {
      MemberPlan plan;
      plan.group = absl::StrCat("g", g);
      int size = 1 + random.Below(6);
      if (options_.members > 0) size = options_.members / group_count;
      plan.spec.max_members = size;
      plan.spec.min_members = random.Chance(0.4) ? std::max(1, size / 2) : size;
      plan.spec.fate = random.Chance(0.5) ? Fate::kShare : Fate::kReport;
      plan.spec.lease = absl::Seconds(3 + random.Below(4));
      plan.spec.join_window = absl::Milliseconds(500);
      if (random.Chance(0.3)) plan.spec.progress_timeout = absl::Seconds(8);
      plan.disturb = options_.members > 0 ? 0.0001 : random.Below(3) * 0.01;
      if (options_.members > 0) plan.pause = absl::Milliseconds(100);
      groups_.push_back(plan);
      for (int m = 0; m < size; ++m) {
        plan.name = absl::StrCat(plan.group, "-m", m);
        members_.push_back(std::make_unique<SimulatedMember>(world_, checker_, plan));
      }
      checker_.Observe(plan.group);
    }
  }

  // Things that happen to processes, for as long as nothing is healed.
  void Disturb() {
    SimulationRandom& random = world_.random();
    // Large groups need longer between two blows to get anything done.
    const int slower = options_.members > 0 ? 6 : 1;
    world_.After(random.Between(absl::Milliseconds(100), absl::Seconds(2)) * slower, [this] {
      if (healed_) return;
      Disturb();
      SimulationRandom& r = world_.random();
      SimulatedMember& member = *members_[r.Below(static_cast<int>(members_.size()))];
      switch (r.Below(10)) {
        case 0:
        case 1:
          if (world_.durable()) world_.Crash(r.Between(absl::Milliseconds(5), absl::Seconds(2)));
          break;
        case 2:
          if (world_.durable()) world_.Stop(r.Between(absl::Milliseconds(5), absl::Seconds(1)));
          break;
        case 3:
        case 4:
          Kill(member);
          break;
        case 5:
        case 6:
          member.Pause(r.Between(absl::Milliseconds(100), member.plan().spec.lease * 2));
          break;
        case 7:
          if (r.Chance(0.3)) CloseGroup(member.plan().group);
          break;
        case 8:
          if (r.Chance(0.5)) Evict(member);
          break;
        default:
          break;
      }
    });
  }

  void Kill(SimulatedMember& member) {
    member.Crash();
    world_.After(world_.random().Between(absl::Milliseconds(20), absl::Seconds(6)), [&member] {
      if (!member.alive()) member.Start();
    });
  }

  void Ask(const std::string& group, CallBody body, SimulatedWorld::Done done) {
    Call call;
    call.caller.key = GroupKey{"t", group};
    call.body = std::move(body);
    world_.Ask(std::move(call), std::move(done));
  }
  void CloseGroup(const std::string& group) {
    Ask(group, CloseGroupCall{"by an operator"}, [](const Reply*) {});
  }
  void Evict(const SimulatedMember& member) {
    Ask(member.plan().group, EvictCall{member.plan().name, "by an operator"}, [](const Reply*) {});
  }

  void RunFor(absl::Duration duration) {
    const Instant until = world_.now() + duration;
    while (world_.now() < until && world_.RunOne()) {
    }
  }

  void Heal() {
    healed_ = true;
    world_.faults() = NetworkFaults{};
    for (auto& member : members_) member->Calm();
    // Those that are down come back within this time.
    const Instant until = world_.now() + kConvergence;
    do {
      RunFor(absl::Seconds(3));
    } while (world_.failure().empty() && world_.now() < until && !WhyNotTogether().empty());
  }

  void CheckConverged() {
    const std::string why = WhyNotTogether();
    if (why.empty()) return;
    world_.Fail(
        absl::StrCat("after ", absl::FormatDuration(kConvergence), " without faults, ", why));
  }

  std::string WhyNotTogether() {
    if (!world_.up()) return "the coordinator is down";
    for (const MemberPlan& group : groups_) {
      int joined = 0, together = 0;
      int64_t newest = 0;
      for (const auto& member : members_) {
        if (member->plan().group == group.group) newest = std::max(newest, member->generation());
      }
      for (const auto& member : members_) {
        if (member->plan().group != group.group) continue;
        joined += member->is_joined() ? 1 : 0;
        together += member->is_joined() && member->generation() == newest ? 1 : 0;
      }
      if (joined != group.spec.max_members || together != joined) {
        return absl::StrCat(joined, " of ", group.spec.max_members, " members of ", group.group,
                            " have joined, ", together, " of them in generation ", newest);
      }
    }
    return "";
  }

  void Finish() {
    CheckAtRest();
    for (auto& member : members_) member->Finish();
    RunFor(absl::Seconds(30));
    for (const auto& member : members_) {
      if (!member->gone()) world_.Fail(absl::StrCat(member->plan().name, " cannot leave"));
    }
    for (const MemberPlan& group : groups_) CloseGroup(group.group);
    RunFor(absl::Seconds(1));
    CheckTenantStore();
    checker_.Rest();
    // Items that were handed to the dead expire.
    RunFor(absl::Hours(2));
    CheckNothingIsLeft();
  }

  // Once the members make no calls, no call waits, and a keep-alive has acknowledged all received
  // objects.
  void CheckAtRest() {
    for (auto& member : members_) member->Rest();
    RunFor(absl::Seconds(10));
    for (const MemberPlan& group : groups_) {
      Ask(group.group, DumpWaitsCall{}, [&](const Reply* reply) {
        if (reply == nullptr || !reply->status.ok()) return;
        for (const ParkedCall& call : std::get<DumpWaitsReply>(reply->body).calls) {
          if (call.operation == "watch of events") continue;  // the checker's
          world_.Fail(absl::StrCat(call.operation, " of ", call.member, " waits at rest, for ",
                                   FormatRanges(call.waits_on), " since ",
                                   absl::FormatDuration(call.age)));
        }
      });
      Ask(group.group, StatsCall{}, [&](const Reply* reply) {
        if (reply == nullptr || !reply->status.ok()) return;
        const auto& stats = std::get<StatsReply>(reply->body);
        const int64_t allowed = checker_.abandoned_receives(group.group);
        if (stats.unacknowledged_count > allowed) {
          world_.Fail(absl::StrCat(stats.unacknowledged_count, " objects of ", group.group,
                                   " are not acknowledged at rest; ", allowed, " may be"));
        }
      });
    }
    RunFor(absl::Seconds(1));
  }

  void CheckTenantStore() {
    bool empty = false;
    while (!empty && world_.failure().empty()) {
      empty = true;
      Ask("", QueuePopCall{"queue"}, [&](const Reply* reply) {
        const auto& popped = std::get<QueuePopReply>(reply->body);
        if (!popped.found) return;
        checker_.Popped(popped.value.bytes(), Id128{1, static_cast<uint64_t>(popped.sequence)});
        empty = false;
      });
      RunFor(absl::Milliseconds(20));
    }
    checker_.CheckQueueDrained();
    Ask("", GetCall{{"counter"}}, [&](const Reply* reply) {
      int64_t value = 0;
      for (const KeyValue& found : std::get<GetReply>(reply->body).values) {
        static_cast<void>(absl::SimpleAtoi(found.value.bytes(), &value));
      }
      checker_.CheckCounter(value);
    });
    Ask("", DeleteCall{"", true}, [](const Reply*) {});
    RunFor(absl::Seconds(1));
    checker_.CheckHistories();
  }

  void CheckNothingIsLeft() {
    const CoreStats stats = world_.core().Stats();
    if (stats.group_count != 0 || stats.waiter_count != 0 || world_.outstanding_count() != 0) {
      world_.Fail(absl::StrCat(stats.group_count, " groups and ", stats.waiter_count,
                               " parked calls are left after all is closed"));
    }
    if (world_.held_bytes() != 0) {
      world_.Fail(absl::StrCat(world_.held_bytes(), " bytes are held after all is closed"));
    }
    for (const Record& row : world_.journal().Rows()) {
      // First answers of the tenant's store go by number; names of closed groups stay for their
      // generations.
      if (row.kind == RecordKind::kGroup || row.key.group.empty()) continue;
      world_.Fail(absl::StrCat("a row of kind ", static_cast<int>(row.kind), " of ", row.key.group,
                               " is left after all is closed"));
    }
  }

  const SimulationOptions options_;
  SimulatedWorld world_;
  InvariantChecker checker_;
  std::vector<MemberPlan> groups_;
  std::vector<std::unique_ptr<SimulatedMember>> members_;
  bool healed_ = false;
};

}  // namespace

SimulationResult Simulate(const SimulationOptions& options) { return Simulation(options).Run(); }

}  // namespace cohort::coordinator
