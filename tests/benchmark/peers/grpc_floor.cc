#include "tests/benchmark/peers/grpc_floor.h"

#include <atomic>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tests/benchmark/child_process.h"
#include "tests/benchmark/peers/grpc_floor_client.h"
#include "tests/benchmark/timing.h"
#include "tests/benchmark/wire_sizes.h"

namespace cohort::benchmark {
namespace {

constexpr int kHandoffsPerRun = 20;

class GrpcFloor final : public Implementation {
 public:
  GrpcFloor(std::unique_ptr<ChildProcess> server, std::string address)
      : server_(std::move(server)), address_(std::move(address)) {}

  std::string name() const override { return "grpc-floor"; }

  absl::StatusOr<Operation> Prepare(const Cell& cell) override {
    if (cell.kind == OperationKind::kJoin) {
      return Operation([this, cell]() -> absl::StatusOr<Sample> {
        const SteadyTime start = Now();
        GrpcFloorClient client(address_, ConnectionCount(cell));
        absl::StatusOr<Sample> sample = ParkAll(client, cell);
        if (sample.ok()) sample->latencies[0] = absl::FromChrono(Now() - start);
        return sample;
      });
    }
    auto client = std::make_shared<GrpcFloorClient>(address_, ConnectionCount(cell));
    COHORT_RETURN_IF_ERROR(client->Connect());
    switch (cell.kind) {
      case OperationKind::kHandoff:
        return Operation([this, cell, client] { return Handoff(*client, cell); });
      case OperationKind::kPut: {
        const WireSizes sizes = SizesOf(cell);
        return Operation([cell, client, sizes] {
          return TimeCallers(cell.members, absl::Milliseconds(500), [&](int caller) {
            return client->EchoOnce(caller, sizes.request, sizes.reply);
          });
        });
      }
      default:
        return Operation([this, cell, client] { return ParkAll(*client, cell); });
    }
  }

 private:
  absl::StatusOr<Sample> ParkAll(GrpcFloorClient& client, const Cell& cell) {
    const WireSizes sizes = SizesOf(cell);
    const uint64_t round = ++last_round_;
    return TimeFanOut(cell.members, [&](int member, std::function<void(const absl::Status&)> done) {
      client.ParkAsync(member, round, cell.members, sizes.request, sizes.reply, std::move(done));
    });
  }

  // The receiver's call parks; the sender's call carries the object, and both are answered.
  absl::StatusOr<Sample> Handoff(GrpcFloorClient& client, const Cell& cell) {
    const WireSizes receive = SizesOf(cell);
    const WireSizes send = SizesOfSend(cell.bytes);
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

absl::StatusOr<std::unique_ptr<Implementation>> StartGrpcFloor(const std::string& server,
                                                               const std::string& scratch) {
  const std::string port_file = absl::StrCat(scratch, "/grpc_floor.port");
  ChildProcessOptions options;
  options.command = {server, "--listen", "127.0.0.1:0", "--port-file", port_file};
  options.log_path = absl::StrCat(scratch, "/grpc_floor.log");
  std::remove(port_file.c_str());  // of a run before
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> process, ChildProcess::Start(options));
  COHORT_ASSIGN_OR_RETURN(const int port, WaitForPortFile(port_file, *process));
  return std::make_unique<GrpcFloor>(std::move(process), absl::StrCat("127.0.0.1:", port));
}

}  // namespace cohort::benchmark
