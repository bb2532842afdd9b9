#include "coordinator/metrics.h"

#include <array>
#include <atomic>
#include <utility>
#include <vector>

#include "base/daemon/served_metrics.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/histogram.h"

namespace cohort::coordinator {
namespace {

constexpr size_t kCodeCount = 17;  // of absl::StatusCode

using Buckets = prometheus::Histogram::BucketBoundaries;

// In seconds: from the time of a call that does not wait to that of the longest wait.
Buckets TimeBuckets() {
  return {0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000};
}

// Reads the engine at each scrape, so that nothing has to be kept up to date.
class EngineGauges final : public prometheus::Collectable {
 public:
  explicit EngineGauges(const Engine& engine) : engine_(engine) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    const EngineStats stats = engine_.Stats();
    const auto gauge = prometheus::MetricType::Gauge;
    const auto counter = prometheus::MetricType::Counter;
    prometheus::MetricFamily memory = MakeFamily(
        "cohort_memory_bytes", "Memory that the coordinator keeps for callers, by kind.", gauge, 0);
    memory.metric.clear();
    for (int kind = 0; kind < kMemoryKindCount; ++kind) {
      prometheus::ClientMetric metric;
      metric.label.push_back({"kind", MemoryKindName(static_cast<MemoryKind>(kind))});
      metric.gauge.value = static_cast<double>(stats.memory[kind]);
      memory.metric.push_back(std::move(metric));
    }
    return {
        std::move(memory),
        MakeFamily("cohort_groups", "Groups that are not closed.", gauge, stats.total.group_count),
        MakeFamily("cohort_members", "Members of all groups.", gauge, stats.total.member_count),
        MakeFamily("cohort_waiters", "Calls that are parked.", gauge, stats.total.waiter_count),
        MakeFamily("cohort_held_bytes", "Bytes of values held.", gauge, stats.total.bytes_held),
        MakeFamily("cohort_barriers_released_total", "Barriers released.", counter,
                   stats.total.barriers_released),
        MakeFamily("cohort_members_lost_total", "Members lost.", counter, stats.total.members_lost),
        MakeFamily("cohort_objects_expired_total", "Objects that expired unread.", counter,
                   stats.total.objects_expired),
        MakeFamily("cohort_draining", "1 while draining.", gauge, stats.draining ? 1 : 0),
        MakeFamily("cohort_boot", "How often the journal was opened.", gauge, stats.boot),
        MakeFamily("cohort_server_incarnation", "Names this start of the process.", gauge,
                   static_cast<double>(stats.server_incarnation)),
        MakeFamily("cohort_uptime_seconds", "Since the start.", gauge,
                   absl::ToDoubleSeconds(stats.uptime)),
    };
  }

 private:
  const Engine& engine_;
};

}  // namespace

struct Metrics::Impl {
  Impl();

  prometheus::Counter* Handled(size_t method, size_t code);

  ServedMetrics served;
  prometheus::Family<prometheus::Counter>* handled_family = nullptr;
  std::array<prometheus::Counter*, kMethodCount> started{};
  std::array<prometheus::Histogram*, kMethodCount> seconds{};
  // Made when a method first ends with a code.
  std::array<std::array<std::atomic<prometheus::Counter*>, kCodeCount>, kMethodCount> handled{};
  prometheus::Histogram* skew = nullptr;
  std::array<prometheus::Counter*, kEventKindCount + 1> group_events{};
  prometheus::Histogram* append_seconds = nullptr;
  prometheus::Histogram* append_records = nullptr;
};

Metrics::Impl::Impl() {
  auto& started_family = prometheus::BuildCounter()
                             .Name("grpc_server_started_total")
                             .Help("Calls begun.")
                             .Register(served.counters());
  handled_family = &prometheus::BuildCounter()
                        .Name("grpc_server_handled_total")
                        .Help("Calls ended, by code.")
                        .Register(served.counters());
  auto& seconds_family = prometheus::BuildHistogram()
                             .Name("grpc_server_handling_seconds")
                             .Help("From the request to the answer, waits included.")
                             .Register(served.counters());
  for (size_t i = 0; i < kMethodCount; ++i) {
    const MethodInfo& info = GetMethod(static_cast<Method>(i));
    const prometheus::Labels labels = {{"grpc_service", info.service}, {"grpc_method", info.name}};
    started[i] = &started_family.Add(labels);
    seconds[i] = &seconds_family.Add(labels, TimeBuckets());
  }
  skew = &prometheus::BuildHistogram()
              .Name("cohort_barrier_skew_seconds")
              .Help("From the first arrival to the last, of released barriers.")
              .Register(served.counters())
              .Add({}, TimeBuckets());
  auto& events_family = prometheus::BuildCounter()
                            .Name("cohort_group_events_total")
                            .Help("Events of groups, by kind.")
                            .Register(served.counters());
  for (int kind = 1; kind <= kEventKindCount; ++kind) {
    group_events[static_cast<size_t>(kind)] =
        &events_family.Add({{"kind", EventKindName(static_cast<EventKind>(kind))}});
  }
  append_seconds = &prometheus::BuildHistogram()
                        .Name("cohort_journal_append_seconds")
                        .Help("One durable write.")
                        .Register(served.counters())
                        .Add({}, TimeBuckets());
  append_records = &prometheus::BuildHistogram()
                        .Name("cohort_journal_batch_records")
                        .Help("Records in one durable write.")
                        .Register(served.counters())
                        .Add({}, Buckets{1, 3, 10, 30, 100, 300, 1000, 3000, 10000});
}

prometheus::Counter* Metrics::Impl::Handled(size_t method, size_t code) {
  std::atomic<prometheus::Counter*>& slot = handled[method][code];
  prometheus::Counter* counter = slot.load(std::memory_order_acquire);
  if (counter == nullptr) {
    const MethodInfo& info = GetMethod(static_cast<Method>(method));
    const std::string name = absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
    // The family gives the same counter to all calls with the same labels.
    counter = &handled_family->Add(
        {{"grpc_service", info.service}, {"grpc_method", info.name}, {"grpc_code", name}});
    slot.store(counter, std::memory_order_release);
  }
  return counter;
}

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

absl::Status Metrics::Serve(const std::string& address, const Engine& engine,
                            MetricsAccess access) {
  return impl_->served.Serve(address, std::make_shared<EngineGauges>(engine), std::move(access));
}

int Metrics::port() const { return impl_->served.port(); }

void Metrics::Stop() { impl_->served.Stop(); }

std::string Metrics::Collect() const { return impl_->served.Collect(); }

void Metrics::OnStarted(Method method) { impl_->started[static_cast<size_t>(method)]->Increment(); }

void Metrics::OnHandled(Method method, absl::StatusCode code, absl::Duration took) {
  const size_t index = static_cast<size_t>(method);
  const size_t code_index = static_cast<size_t>(code);
  impl_->Handled(index, code_index < kCodeCount ? code_index : 2)->Increment();
  impl_->seconds[index]->Observe(absl::ToDoubleSeconds(took));
}

void Metrics::OnRoundEnd(const RoundEnd& end) {
  if (end.kind == RoundKind::kBarrier && end.outcome == RoundOutcome::kReleased) {
    impl_->skew->Observe(absl::ToDoubleSeconds(end.skew));
  }
}

void Metrics::OnGroupEvent(const GroupKey&, const GroupEvent& event) {
  impl_->group_events[static_cast<size_t>(event.kind)]->Increment();
}

void Metrics::OnAppend(absl::Duration took, size_t record_count) {
  impl_->append_seconds->Observe(absl::ToDoubleSeconds(took));
  impl_->append_records->Observe(static_cast<double>(record_count));
}

}  // namespace cohort::coordinator
