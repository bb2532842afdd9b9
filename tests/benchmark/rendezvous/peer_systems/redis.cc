#include "tests/benchmark/rendezvous/peer_systems/redis.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "tests/benchmark/harness/child_process.h"
#include "tests/benchmark/rendezvous/peer_systems/redis_client.h"
#include "tests/benchmark/rendezvous/timing.h"

namespace cohort::benchmark {
namespace {

constexpr int kHandoffsPerRun = 20;

using Clients = std::vector<std::unique_ptr<RedisClient>>;

class Redis final : public Implementation {
 public:
  Redis(std::unique_ptr<ChildProcess> server, int port) : server_(std::move(server)), port_(port) {}

  std::string name() const override { return "redis"; }

  absl::StatusOr<Operation> Prepare(const Config& config) override {
    const bool handoff = config.kind == OperationKind::kHandoff;
    // A blocking client of Redis has its connection to itself.
    if ((!handoff && config.kind != OperationKind::kPut) ||
        config.connections != Connections::kPerMember) {
      return absl::UnimplementedError("not an operation of Redis");
    }
    auto clients = std::make_shared<Clients>();
    for (int i = 0; i < config.members; ++i) {
      COHORT_ASSIGN_OR_RETURN(std::unique_ptr<RedisClient> client, RedisClient::Connect(port_));
      clients->push_back(std::move(client));
    }
    const std::string value(config.bytes, 'x');
    if (handoff) {
      return Operation([clients, value] {
        return TimeHandoffs(
            kHandoffsPerRun, [&] { return (*clients)[1]->BlockingPop("mailbox").status(); },
            [&] { return (*clients)[0]->Push("mailbox", value); });
      });
    }
    return Operation([clients, config, value] {
      return TimeCallers(config.members, absl::Milliseconds(500), [&](int caller) {
        return (*clients)[caller]->Set(absl::StrCat("benchmark/caller-", caller), value);
      });
    });
  }

 private:
  const std::unique_ptr<ChildProcess> server_;
  const int port_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Implementation>> StartRedis(const std::string& server,
                                                           const std::string& scratch) {
  COHORT_ASSIGN_OR_RETURN(const int port, FreeLoopbackPort());
  ChildProcessOptions options;
  options.command = {server,   "--bind", "127.0.0.1",    "--port", absl::StrCat(port),
                     "--save", "",       "--appendonly", "no",     "--dir",
                     scratch};
  options.log_path = absl::StrCat(scratch, "/redis.log");
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> process, ChildProcess::Start(options));
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  while (!RedisClient::Connect(port).ok()) {
    if (absl::Now() > deadline || process->Wait(absl::ZeroDuration()).ok()) {
      return absl::UnavailableError("redis-server does not answer");
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
  return std::make_unique<Redis>(std::move(process), port);
}

}  // namespace cohort::benchmark
