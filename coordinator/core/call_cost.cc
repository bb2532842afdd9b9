#include "coordinator/core/call_cost.h"

#include <type_traits>
#include <variant>

#include "coordinator/core/runtime/wait_table.h"

namespace cohort::coordinator {
namespace {

// Upper bounds of the structures, texts aside.
constexpr int64_t kMember = 2048;
constexpr int64_t kRound = 2048;
constexpr int64_t kUniqueId = 1024;
constexpr int64_t kEvent = 1024;
constexpr int64_t kStream = 64;
constexpr int64_t kQueue = 512;

template <typename T, typename... Others>
constexpr bool kIsOneOf = (std::is_same_v<T, Others> || ...);

template <typename T>
constexpr bool kMayWait =
    kIsOneOf<T, ReceiveCall, FetchIdsCall, AckViewCall, WatchGroupCall, WatchKeysCall>;

}  // namespace

CallCost CostOf(const Call& call) {
  const int64_t parked = call.wait > absl::ZeroDuration() ? WaitTable::kParkedCallCost : 0;
  return std::visit(
      [&](const auto& body) -> CallCost {
        using T = std::decay_t<decltype(body)>;
        if constexpr (std::is_same_v<T, JoinCall>) {
          const int64_t texts = CostOf(body.host) + CostOf(body.addresses) + CostOf(body.labels);
          return {MemoryKind::kMembers, kMember + parked + 3 * CostOf(body.member) + 2 * texts};
        } else if constexpr (std::is_same_v<T, EnterRoundCall>) {
          return {MemoryKind::kRounds, kRound + parked + 2 * CostOf(body.name)};
        } else if constexpr (std::is_same_v<T, GetCall>) {
          const int64_t names = CostOf(body.keys) + CostOf(body.queues) + CostOf(body.client);
          return {MemoryKind::kCalls, body.wait && parked != 0 ? parked + names : 0};
        } else if constexpr (std::is_same_v<T, QueuePopCall>) {
          return {MemoryKind::kCalls, parked == 0 ? 0 : parked + kQueue + 2 * CostOf(body.queue)};
        } else if constexpr (std::is_same_v<T, ProposeViewCall>) {
          // The proposal, its outcome, and the events about both.
          return {MemoryKind::kEvents, 4 * (kEvent + CostOf(body.add)) + parked};
        } else if constexpr (std::is_same_v<T, PublishIdsCall>) {
          return {MemoryKind::kUniqueIds, kUniqueId + CostOf(body.name) + CostOf(body.ids),
                  Share::kNew};
        } else if constexpr (std::is_same_v<T, ReportInitCall>) {
          return {MemoryKind::kUniqueIds, kUniqueId + CostOf(body.name) + CostOf(body.detail)};
        } else if constexpr (std::is_same_v<T, ReportErrorCall>) {
          return {MemoryKind::kEvents, kEvent + CostOf(body.detail)};
        } else if constexpr (std::is_same_v<T, AttachCall>) {
          return {MemoryKind::kCalls, body.closed ? 0 : kStream};
        } else if constexpr (kMayWait<T>) {
          return {MemoryKind::kCalls, parked};
        } else {
          return {};
        }
      },
      call.body);
}

bool NeedsWaiterQuota(const Call& call) {
  return call.wait > absl::ZeroDuration() &&
         std::visit(
             [](const auto& body) {
               return kIsOneOf<std::decay_t<decltype(body)>, JoinCall, ReceiveCall, GetCall,
                               QueuePopCall, FetchIdsCall>;
             },
             call.body);
}

}  // namespace cohort::coordinator
