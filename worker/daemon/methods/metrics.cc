#include "worker/daemon/methods/metrics.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/daemon/served_metrics.h"
#include "base/threads/mutex.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/histogram.h"

namespace cohort::worker {
namespace {

// A class of sizes: up to and including `most` bytes.
struct SizeClass {
  int64_t most;
  const char* name;
};
constexpr SizeClass kSizeClasses[] = {{int64_t{4} << 10, "<=4Ki"},
                                      {int64_t{64} << 10, "<=64Ki"},
                                      {int64_t{1} << 20, "<=1Mi"},
                                      {int64_t{16} << 20, "<=16Mi"},
                                      {INT64_MAX, ">16Mi"}};

const SizeClass& SizeClassOf(int64_t bytes) {
  const SizeClass* size = kSizeClasses;
  while (bytes > size->most) ++size;
  return *size;
}

// The counters of one collective and size.
struct Cell {
  prometheus::Counter* calls = nullptr;
  prometheus::Counter* bytes = nullptr;
  prometheus::Histogram* seconds = nullptr;
};

// In seconds, from a call in shared memory to one that waits for other ranks.
prometheus::Histogram::BucketBoundaries TimeBuckets() {
  return {0.00001, 0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100};
}

// The limit on series: a client may join any number of groups.
constexpr size_t kMostWaits = 4096;

// Collects the waits of each rank in this worker for each other rank.
prometheus::MetricFamily MakeWaits(const SessionTable& sessions) {
  prometheus::MetricFamily family;
  family.name = "cohort_worker_wait_seconds_total";
  family.help = "How long a rank slept in tensor calls because another had not come.";
  family.type = prometheus::MetricType::Counter;
  // For a moment, a rank that was taken over may be in two sessions.
  std::map<std::vector<std::string>, double> waits;
  for (const std::shared_ptr<Session>& session : sessions.All()) {
    for (const auto& [number, entry] : session->groups()) {
      const GroupFacts facts = entry->facts();
      for (const WaitedFor& wait : entry->ReadWaits()) {
        if (waits.size() >= kMostWaits) break;
        waits[{facts.tenant, facts.group, absl::StrCat(facts.rank), absl::StrCat(wait.rank)}] +=
            absl::ToDoubleSeconds(wait.time);
      }
    }
  }
  for (const auto& [labels, seconds] : waits) {
    prometheus::ClientMetric metric;
    metric.label = {
        {"tenant", labels[0]}, {"group", labels[1]}, {"rank", labels[2]}, {"waits_for", labels[3]}};
    metric.counter.value = seconds;
    family.metric.push_back(std::move(metric));
  }
  return family;
}

// Reads the sessions at each scrape, so that they need not update metrics.
class SessionGauges final : public prometheus::Collectable {
 public:
  explicit SessionGauges(const SessionTable& sessions) : sessions_(sessions) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    const WorkerStats stats = sessions_.Stats();
    const auto gauge = [](const char* name, const char* help, int64_t value) {
      return MakeFamily(name, help, prometheus::MetricType::Gauge, static_cast<double>(value));
    };
    return {
        gauge("cohort_worker_sessions", "Clients.", stats.sessions),
        gauge("cohort_worker_groups", "Ranks that live here.", stats.groups),
        gauge("cohort_worker_tensors", "Tensors of all sessions.", stats.tensors),
        gauge("cohort_worker_tensor_bytes", "Bytes of tensors.", stats.tensor_bytes),
        gauge("cohort_worker_draining", "1 while draining.", sessions_.draining() ? 1 : 0),
        MakeWaits(sessions_),
    };
  }

 private:
  const SessionTable& sessions_;
};

}  // namespace

struct Metrics::Impl {
  ServedMetrics served;
  prometheus::Family<prometheus::Counter>& calls =
      prometheus::BuildCounter()
          .Name("cohort_worker_calls_total")
          .Help("Collectives and objects that ended, by collective and size.")
          .Register(served.counters());
  prometheus::Family<prometheus::Counter>& bytes =
      prometheus::BuildCounter()
          .Name("cohort_worker_bytes_total")
          .Help("Bytes of the larger of input and output, of calls that went well.")
          .Register(served.counters());
  prometheus::Family<prometheus::Counter>& errors =
      prometheus::BuildCounter()
          .Name("cohort_worker_errors_total")
          .Help("Calls that failed, by collective and code.")
          .Register(served.counters());
  prometheus::Family<prometheus::Histogram>& seconds =
      prometheus::BuildHistogram()
          .Name("cohort_worker_call_seconds")
          .Help("Duration of calls that went well, with their waits for other ranks.")
          .Register(served.counters());

  // Keeps the counters, because a search by labels takes as long as a small collective.
  Cell CellOf(const char* name, const SizeClass& size) {
    MutexLock lock(&mutex);
    Cell& cell = cells[{name, size.name}];
    if (cell.calls == nullptr) {
      const prometheus::Labels labels = {{"collective", name}, {"size", size.name}};
      cell = {&calls.Add(labels), &bytes.Add(labels), &seconds.Add(labels, TimeBuckets())};
    }
    return cell;
  }

  Mutex mutex;
  absl::flat_hash_map<std::pair<const char*, const char*>, Cell> cells ABSL_GUARDED_BY(mutex);
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

absl::Status Metrics::Serve(const std::string& address, const SessionTable& sessions,
                            MetricsAccess access) {
  return impl_->served.Serve(address, std::make_shared<SessionGauges>(sessions), std::move(access));
}

int Metrics::port() const { return impl_->served.port(); }

void Metrics::Stop() { impl_->served.Stop(); }

std::string Metrics::Collect() const { return impl_->served.Collect(); }

void Metrics::OnCall(const char* name, int64_t bytes, absl::Duration took, absl::StatusCode code) {
  const Cell cell = impl_->CellOf(name, SizeClassOf(bytes));
  cell.calls->Increment();
  if (code != absl::StatusCode::kOk) {
    impl_->errors.Add({{"collective", name}, {"code", absl::StatusCodeToString(code)}}).Increment();
    return;
  }
  cell.bytes->Increment(static_cast<double>(bytes));
  cell.seconds->Observe(absl::ToDoubleSeconds(took));
}

}  // namespace cohort::worker
