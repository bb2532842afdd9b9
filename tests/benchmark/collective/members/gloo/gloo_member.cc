// A rank of Gloo: three full meshes of TCP connections, one for each mode of
// waiting for sockets. Work::algorithm is "MODE/ALGORITHM": "async/ring", "busy/class-bcube".
#include <gloo/barrier.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tests/benchmark/collective/members/gloo/gloo_work.h"
#include "tests/benchmark/collective/members/harness/member.h"
#include "tests/benchmark/collective/members/harness/member_buffers.h"
#include "tests/benchmark/collective/members/harness/member_main.h"

namespace cohort::benchmark {
namespace {

// Longer than the driver waits.
constexpr std::chrono::seconds kTimeout(120);

template <typename F>
absl::Status Guarded(F call) {
  try {
    call();
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("gloo: ", error.what()));
  }
}

class GlooWork final : public Prepared {
 public:
  GlooWork(Buffers buffers, GlooCall call) : buffers_(std::move(buffers)), call_(std::move(call)) {}

  float* input() override { return buffers_.input->data(); }
  float* output() override { return buffers_.output->data(); }

  absl::Status Run(int64_t iterations) override {
    return Guarded([&] {
      for (int64_t i = 0; i < iterations; ++i) call_();
    });
  }

 private:
  const Buffers buffers_;
  const GlooCall call_;
};

class GlooMember final : public Member {
 public:
  explicit GlooMember(const MemberOptions& options) : options_(options) {
    gloo::rendezvous::FileStore store(options.folder);
    auto device = gloo::transport::tcp::CreateDevice(
        options.address.empty() ? "127.0.0.1" : options.address.c_str());
    for (const char* mode : {"async", "sync", "busy"}) {
      gloo::rendezvous::PrefixStore part(mode, store);
      auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.members);
      context->setTimeout(kTimeout);
      context->connectFullMesh(part, device);
      contexts_[mode] = std::move(context);
    }
    for (int peer = 0; peer < options.members; ++peer) {
      if (peer == options.rank) continue;
      contexts_["sync"]->getPair(peer)->setSync(true, false);
      contexts_["busy"]->getPair(peer)->setSync(true, true);
    }
  }

  int rank() const override { return options_.rank; }

  absl::Status Barrier() override {
    return Guarded([this] {
      gloo::BarrierOptions options(contexts_["async"]);
      gloo::barrier(options);
    });
  }

  absl::StatusOr<std::unique_ptr<Prepared>> Prepare(const Work& work) override {
    const size_t slash = work.algorithm.find('/');
    const auto context = contexts_.find(work.algorithm.substr(0, slash));
    if (slash == std::string::npos || context == contexts_.end()) {
      return absl::UnimplementedError(absl::StrCat("no algorithm \"", work.algorithm, "\""));
    }
    Buffers buffers;
    buffers.extents = ExtentsOf(work, options_.rank, options_.members);
    const int64_t output = work.collective == Collective::kReduceScatter ? buffers.extents.input
                                                                         : buffers.extents.output;
    COHORT_ASSIGN_OR_RETURN(buffers.input, Block::Allocate(buffers.extents.input));
    COHORT_ASSIGN_OR_RETURN(buffers.output, Block::Allocate(output));

    GlooTask task;
    task.context = context->second;
    task.work = work;
    task.algorithm = work.algorithm.substr(slash + 1);
    task.input = buffers.input->data();
    task.output = buffers.output->data();
    GlooCall call;
    COHORT_RETURN_IF_ERROR(Guarded([&] {
      call =
          absl::StartsWith(task.algorithm, "class-") ? MakeClassCall(task) : MakeFunctionCall(task);
    }));
    if (call == nullptr) return absl::UnimplementedError("not in this generation of Gloo");
    return std::make_unique<GlooWork>(std::move(buffers), std::move(call));
  }

 private:
  const MemberOptions options_;
  std::map<std::string, std::shared_ptr<gloo::rendezvous::Context>> contexts_;
};

absl::StatusOr<std::unique_ptr<Member>> MakeMember(const MemberOptions& options) {
  std::unique_ptr<Member> member;
  COHORT_RETURN_IF_ERROR(Guarded([&] { member = std::make_unique<GlooMember>(options); }));
  return member;
}

}  // namespace
}  // namespace cohort::benchmark

int main(int argc, char** argv) {
  return cohort::benchmark::MemberMain(argc, argv, cohort::benchmark::MakeMember);
}
