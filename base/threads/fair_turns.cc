#include "base/threads/fair_turns.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace cohort {
namespace {

// Then the loop looks for events, which may bring work of other clients.
constexpr absl::Duration kBetweenLooks = absl::Milliseconds(1);

}  // namespace

FairTurns::~FairTurns() {
  for (auto& [used, client] : waiting_) client->work_.clear();
}

std::shared_ptr<FairTurns::Client> FairTurns::ClientOf(const std::string& name) {
  std::weak_ptr<Client>& known = clients_[name];
  std::shared_ptr<Client> client = known.lock();
  if (client != nullptr) return client;
  known = client = std::make_shared<Client>();
  if (clients_.size() >= sweep_at_) {
    for (auto it = clients_.begin(); it != clients_.end();) {
      if (it->second.expired()) {
        clients_.erase(it++);
      } else {
        ++it;
      }
    }
    sweep_at_ = std::max<size_t>(64, clients_.size() * 2);
  }
  return client;
}

void FairTurns::Add(const std::shared_ptr<Client>& client, std::shared_ptr<Work> work) {
  client->work_.push_back(std::move(work));
  if (std::exchange(client->waits_, true)) return;
  client->used_ = std::max(client->used_, least_used_);
  waiting_.emplace(client->used_, client);
  if (!std::exchange(posted_, true)) loop_.Post([this] { Run(); });
}

void FairTurns::Run() {
  const Instant begin = Clock::Steady().Now();
  std::optional<absl::Duration> used;  // by this thread, at the end of the last turn
  do {
    auto first = waiting_.extract(waiting_.begin());
    Client& client = *first.mapped();
    least_used_ = client.used_;
    const std::shared_ptr<Work> work = std::move(client.work_.front());
    client.work_.pop_front();
    if (waiting_.empty()) {
      // A look at the thread's time may take longer than the turn.
      work->OnTurn();
      used.reset();
    } else {
      const absl::Duration before = used.has_value() ? *used : thread_time_();
      work->OnTurn();
      used = thread_time_();
      client.used_ += *used - before;
    }
    client.waits_ = !client.work_.empty();
    if (!client.waits_) continue;
    first.key() = client.used_;
    waiting_.insert(std::move(first));
  } while (!waiting_.empty() && Clock::Steady().Now() - begin < kBetweenLooks);
  posted_ = !waiting_.empty();
  if (posted_) loop_.Post([this] { Run(); });
}

}  // namespace cohort
