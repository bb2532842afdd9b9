#include <deque>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "worker/group/testing/rank_program/backend.h"

namespace cohort::testing {
namespace {

class HostBackend final : public Backend {
 public:
  absl::StatusOr<Formed> Form(client::ProcessGroup&, std::unique_ptr<worker::Communicator> host,
                              absl::Duration) override {
    return Formed{nullptr, std::move(host)};
  }
  absl::Status RunRecorded(worker::Communicator& communicator, int /*calls*/,
                           absl::FunctionRef<absl::Status(worker::Communicator&)> body, int times,
                           Instant /*deadline*/) override {
    for (int i = 0; i < times; ++i) COHORT_RETURN_IF_ERROR(body(communicator));
    return absl::OkStatus();
  }
  bool Reduces(DataType type, ReduceOp op, int /*ranks*/) const override {
    return CheckReducible(type, op).ok();
  }
  absl::StatusOr<char*> Allocate(size_t bytes) override {
    pieces_.emplace_back(bytes);
    return pieces_.back().data();
  }
  absl::Status Write(absl::string_view bytes, char* to, Instant) override {
    bytes.copy(to, bytes.size());
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Read(const char* from, size_t bytes, Instant) override {
    return std::string(from, bytes);
  }

 private:
  std::deque<std::vector<char>> pieces_;
};

}  // namespace

std::unique_ptr<Backend> MakeHostBackend() { return std::make_unique<HostBackend>(); }

}  // namespace cohort::testing
