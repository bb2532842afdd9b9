#include "coordinator/service/tcpstore/tcpstore_jobs.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text/logging.h"
#include "base/text/printable.h"
#include "coordinator/service/engine/discard_reply.h"

namespace cohort::coordinator::tcpstore {

// Takes the reply to the call that releases a barrier.
class Jobs::Release final : public ReplySink {
 public:
  explicit Release(Barrier barrier) : barrier_(std::move(barrier)) {}

  void OnReply(Reply&& reply, DeliveryContext&) override {
    if (!reply.status.ok()) {
      const absl::Status why(reply.status.code(), absl::StrCat(Printable(barrier_.name),
                                                               " of a TCPStore was not released: ",
                                                               reply.status.message()));
      for (const auto& [refused, fail] : barrier_.arrived) fail(why);
    }
    delete this;
  }

 private:
  const Barrier barrier_;
};

std::string TenantOfPort(int port) { return absl::StrCat("tcpstore-", port); }

Jobs::Jobs(Engine& engine, const std::vector<int>& ports) : engine_(engine) {
  for (const int port : ports) Clear(port);
}

Jobs::Job& Jobs::JobLocked(int port) {
  Job& job = jobs_[port];
  if (job.number == 0) job.number = ++last_job_;
  return job;
}

void Jobs::Enter(int port, Client* client) {
  MutexLock lock(&mutex_);
  Job& job = JobLocked(port);
  client->job = job.number;
  job.clients.insert(client);
  if (job.clients.size() > 1) return;
  Log(LogLevel::kInfo, "a TCPStore has its first client", {{"tenant", TenantOfPort(port)}});
}

void Jobs::EnterAsWriter(int port, Client* client) {
  client->has_written = true;
  MutexLock lock(&mutex_);
  Job& job = JobLocked(port);
  if (job.number == client->job) job.has_written = true;
}

void Jobs::EnterAsRank(int port, Client* client) {
  MutexLock lock(&mutex_);
  Job* job = &JobLocked(port);
  if (client->is_rank || client->job != job->number) return;
  const auto others = static_cast<int>(job->clients.size()) - 1;
  if (job->lost_rank && job->ranks == others && others > 0) {
    Log(LogLevel::kWarning,
        "a new job uses a TCPStore that has lost a rank: the keys are deleted, and the ranks that "
        "are left lose their connections",
        {{"tenant", TenantOfPort(port)}, {"ranks", others}});
    for (Client* const old : job->clients) {
      if (old == client) continue;
      old->has_ended.store(true);
      old->close();
    }
    jobs_.erase(port);
    // Under the lock: the new job comes to an empty store.
    Clear(port);
    job = &JobLocked(port);
    client->job = job->number;
    job->clients.insert(client);
    job->has_written = true;
  }
  client->is_rank = true;
  ++job->ranks;
}

void Jobs::Leave(int port, Client* client) {
  MutexLock lock(&mutex_);
  const auto found = jobs_.find(port);
  if (found == jobs_.end() || found->second.number != client->job) return;  // its job has ended
  Job& job = found->second;
  job.clients.erase(client);
  if (client->is_rank) {
    --job.ranks;
    job.lost_rank = true;
  }
  if (!job.clients.empty()) return;
  const bool has_written = job.has_written;
  jobs_.erase(found);
  if (!has_written) return;
  // Under the lock: the next client comes to an empty store.
  Clear(port);
  Log(LogLevel::kInfo, "a TCPStore has lost its last client: its keys are deleted",
      {{"tenant", TenantOfPort(port)}});
}

absl::StatusOr<bool> Jobs::EnterBarrier(int port, absl::string_view key, int64_t size,
                                        const std::string& client, Fail fail, ReplySink* sink,
                                        CallHandle* handle, BarrierPlace* place) {
  if (size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("barrier ", Printable(key), " of ", size, " clients"));
  }
  MutexLock lock(&mutex_);
  auto& barriers = JobLocked(port).barriers;
  auto [it, is_new] = barriers.try_emplace(std::string(key));
  Barrier& barrier = it->second;
  if (is_new) {
    barrier.size = size;
    barrier.round = ++last_round_;
    barrier.name = absl::StrCat(key, " (barrier of ", size, ", number ", barrier.round, ")");
  }
  if (barrier.size != size) {
    return absl::InvalidArgumentError(absl::StrCat("barrier ", Printable(key), ": this client has ",
                                                   size, " clients, another one has ",
                                                   barrier.size));
  }
  const std::string name = barrier.name;
  *place =
      BarrierPlace{std::string(key), barrier.round, std::make_shared<std::atomic<bool>>(false)};
  absl::erase_if(barrier.arrived, [](const auto& one) { return one.first->load(); });
  barrier.arrived.emplace(place->refused, std::move(fail));
  // Under the lock: the last client releases only those that wait already.
  if (static_cast<int64_t>(barrier.arrived.size()) == barrier.size) {
    ReplySink* const release = new Release(std::move(barrier));
    barriers.erase(it);
    Submit(port, PutCall{name}, release);
    Submit(port, DeleteCall{name}, DiscardReply::Get());
    return true;
  }
  GetCall wait;
  wait.keys = {name};
  wait.keys_only = true;
  wait.wait = true;
  wait.client = client;
  Call call;
  call.caller.key.tenant = TenantOfPort(port);
  call.wait = kNoEnd;
  call.body = std::move(wait);
  engine_.Submit(std::move(call), sink, handle);
  return false;
}

void Jobs::LeaveBarrier(int port, const BarrierPlace& place) {
  MutexLock lock(&mutex_);
  const auto job = jobs_.find(port);
  if (job == jobs_.end()) return;
  const auto barrier = job->second.barriers.find(place.key);
  if (barrier == job->second.barriers.end() || barrier->second.round != place.round) return;
  barrier->second.arrived.erase(place.refused);
  if (barrier->second.arrived.empty()) job->second.barriers.erase(barrier);
}

void Jobs::Clear(int port) {
  DeleteCall all;
  all.prefix = true;
  all.queues = true;
  Submit(port, std::move(all), DiscardReply::Get());
}

void Jobs::Submit(int port, CallBody body, ReplySink* sink) {
  Call call;
  call.caller.key.tenant = TenantOfPort(port);
  call.body = std::move(body);
  engine_.Submit(std::move(call), sink);
}

}  // namespace cohort::coordinator::tcpstore
