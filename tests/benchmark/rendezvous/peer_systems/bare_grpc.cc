#include "tests/benchmark/rendezvous/peer_systems/bare_grpc.h"

#include <atomic>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tests/benchmark/harness/child_process.h"
#include "tests/benchmark/rendezvous/peer_systems/bare_grpc_client.h"
#include "tests/benchmark/rendezvous/timing.h"
#include "tests/benchmark/rendezvous/wire_sizes.h"

namespace cohort::benchmark {
namespace {

constexpr int kHandoffsPerRun = 20;

class BareGrpc final : public Implementation {
 public:
  BareGrpc(std::unique_ptr<ChildProcess> server, std::string address)
      : server_(std::move(server)), address_(std::move(address)) {}

  std::string name() const override { return "bare-grpc"; }

  absl::StatusOr<Operation> Prepare(const Config& config) override {
    if (config.kind == OperationKind::kJoin) {
      return Operation([this, config]() -> absl::StatusOr<Sample> {
        const SteadyTime start = Now();
        BareGrpcClient client(address_, ConnectionCount(config));
        absl::StatusOr<Sample> sample = ParkAll(client, config);
        if (sample.ok()) sample->latencies[0] = absl::FromChrono(Now() - start);
        return sample;
      });
    }
    auto client = std::make_shared<BareGrpcClient>(address_, ConnectionCount(config));
    COHORT_RETURN_IF_ERROR(client->Connect());
    switch (config.kind) {
      case OperationKind::kHandoff:
        return Operation([this, config, client] { return Handoff(*client, config); });
      case OperationKind::kPut: {
        const WireSizes sizes = SizesOf(config);
        return Operation([config, client, sizes] {
          return TimeCallers(config.members, absl::Milliseconds(500), [&](int caller) {
            return client->EchoOnce(caller, sizes.request, sizes.reply);
          });
        });
      }
      default:
        return Operation([this, config, client] { return ParkAll(*client, config); });
    }
  }

 private:
  absl::StatusOr<Sample> ParkAll(BareGrpcClient& client, const Config& config) {
    const WireSizes sizes = SizesOf(config);
    const uint64_t round = ++last_round_;
    return TimeFanOut(config.members, [&](int member,
                                          std::function<void(const absl::Status&)> done) {
      client.ParkAsync(member, round, config.members, sizes.request, sizes.reply, std::move(done));
    });
  }

  // The receiver's call parks; the sender's call carries the object, and both are answered.
  absl::StatusOr<Sample> Handoff(BareGrpcClient& client, const Config& config) {
    const WireSizes receive = SizesOf(config);
    const WireSizes send = SizesOfSend(config.bytes);
    uint64_t receive_round = last_round_;
    uint64_t send_round = last_round_;
    last_round_ += kHandoffsPerRun;
    return TimeHandoffs(
        kHandoffsPerRun,
        [&] { return client.Park(1, ++receive_round, 2, receive.request, receive.reply); },
        [&] { return client.Park(0, ++send_round, 2, send.request, send.reply); });
  }

  const std::unique_ptr<ChildProcess> server_;
  const std::string address_;
  std::atomic<uint64_t> last_round_{0};
};

}  // namespace

absl::StatusOr<std::unique_ptr<Implementation>> StartBareGrpc(const std::string& server,
                                                              const std::string& scratch) {
  const std::string port_file = absl::StrCat(scratch, "/bare_grpc.port");
  ChildProcessOptions options;
  options.command = {server, "--listen", "127.0.0.1:0", "--port-file", port_file};
  options.log_path = absl::StrCat(scratch, "/bare_grpc.log");
  std::remove(port_file.c_str());  // of a run before
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> process, ChildProcess::Start(options));
  COHORT_ASSIGN_OR_RETURN(const int port, WaitForPortFile(port_file, *process));
  return std::make_unique<BareGrpc>(std::move(process), absl::StrCat("127.0.0.1:", port));
}

}  // namespace cohort::benchmark
