#include "client/collective/record_calls.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/fingerprint.h"
#include "base/status_macros.h"

namespace cohort::client {
namespace {

class Recorder final : public Group {
 public:
  explicit Recorder(const Group& group) : group_(group) {}

  const std::string& name() const override { return group_.name(); }
  int64_t generation() const override { return group_.generation(); }
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  const std::vector<std::string>& paths() const override { return group_.paths(); }
  const std::vector<std::string>& hosts() const override { return group_.hosts(); }
  std::vector<PeerStats> Stats() const override { return group_.Stats(); }
  Placement placement() const override { return group_.placement(); }
  Device device() const override { return group_.device(); }

  absl::StatusOr<Tensor> Allocate(DataType, const Shape&, Device) override {
    return NotRecorded("Allocate");
  }

  absl::Status Run(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                   const CallOptions& options) override {
    if (call.collective == Collective::kExchangeSizes) return NotRecorded("ExchangeSizes");
    if (!call.on_gpus) {
      return NotRecorded(MovesTensors(call.collective)
                             ? absl::StrCat(Describe(call), " in host memory")
                             : Describe(call));
    }
    return Note(RecordedCall(KeptCall(call, input, output)), options);
  }
  absl::Status Exchange(absl::Span<const TensorTransfer> transfers,
                        const CallOptions& options) override {
    for (const TensorTransfer& one : transfers) {
      if (one.tensor.device().is_host()) return NotRecorded("Exchange in host memory");
    }
    return Note(RecordedCall(transfers), options);
  }
  absl::StatusOr<MessageInfo> AwaitMessage(absl::Span<const int>, const CallOptions&) override {
    return NotRecorded("AwaitMessage");
  }

  absl::Status SendObject(absl::string_view, int, const CallOptions&) override {
    return NotRecorded("SendObject");
  }
  absl::StatusOr<std::string> ReceiveObject(int, const CallOptions&) override {
    return NotRecorded("ReceiveObject");
  }
  absl::StatusOr<std::string> BroadcastObject(absl::string_view, int, const CallOptions&) override {
    return NotRecorded("BroadcastObject");
  }
  absl::StatusOr<std::vector<std::string>> AllGatherObjects(absl::string_view,
                                                            const CallOptions&) override {
    return NotRecorded("AllGatherObjects");
  }
  absl::StatusOr<std::vector<std::string>> AllGatherObjectsOf(absl::Span<const int>,
                                                              absl::string_view,
                                                              const CallOptions&) override {
    return NotRecorded("AllGatherObjectsOf");
  }
  absl::Status CopyAll(absl::Span<const TensorCopy>, const CallOptions&) override {
    return NotRecorded("Copy");
  }
  absl::Status FailCollective(const absl::Status&, const CallOptions&) override {
    return NotRecorded("FailCollective");
  }
  absl::Status AwaitStreams(const CallOptions&) override { return NotRecorded("AwaitStreams"); }
  absl::StatusOr<std::unique_ptr<Sequence>> Record(absl::FunctionRef<absl::Status(Group&)>,
                                                   const CallOptions&) override {
    return NotRecorded("Record");
  }
  absl::Status Rejoin(absl::Duration) override { return NotRecorded("Rejoin"); }
  void Abort(const absl::Status&) override { NotRecorded("Abort").IgnoreError(); }

  // The first error, even if the body ignored its status.
  const absl::Status& first_error() const { return first_error_; }
  RecordedCalls& calls() { return calls_; }

 private:
  absl::Status NotRecorded(absl::string_view what) {
    const absl::Status status = absl::FailedPreconditionError(
        absl::StrCat(what,
                     " cannot be recorded: a sequence has collectives and messages on GPU tensors, "
                     "without options of their own"));
    if (first_error_.ok()) first_error_ = status;
    return status;
  }

  absl::Status Note(RecordedCall call, const CallOptions& options) {
    if (options.timeout.has_value() || options.stream.has_value())
      return NotRecorded("CallOptions");
    calls_.push_back(std::move(call));
    return absl::OkStatus();
  }

  const Group& group_;
  RecordedCalls calls_;
  absl::Status first_error_;
};

// The calls that all ranks make, a line each; messages are not among them.
std::string LinesOf(const RecordedCalls& calls) {
  std::vector<std::string> lines;
  for (const RecordedCall& call : calls) {
    if (!call.is_message()) lines.push_back(Describe(call.Common()));
  }
  return absl::StrJoin(lines, "\n");
}

constexpr absl::string_view kNone = "no more calls";

// All ranks call it after they recorded different calls, or some recorded no calls. `own`: this
// rank's calls, a line each.
absl::Status ExplainDifference(Group& group, const std::string& own, const CallOptions& options) {
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> all, group.AllGatherObjects(own, options));
  const std::vector<absl::string_view> first = absl::StrSplit(all[0], '\n');
  for (size_t rank = 1; rank < all.size(); ++rank) {
    const std::vector<absl::string_view> other = absl::StrSplit(all[rank], '\n');
    for (size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
      const absl::string_view a = i < first.size() && !first[i].empty() ? first[i] : kNone;
      const absl::string_view b = i < other.size() && !other[i].empty() ? other[i] : kNone;
      if (a == b) continue;
      return absl::InvalidArgumentError(absl::StrCat("ranks recorded different sequences: call ",
                                                     i + 1, " is, of rank 0, ", a, ", and of rank ",
                                                     rank, " ", b));
    }
  }
  return absl::InvalidArgumentError("ranks recorded different sequences");
}

}  // namespace

RecordedCall::RecordedCall(absl::Span<const TensorTransfer> transfers)
    : transfers_(transfers.begin(), transfers.end()) {
  kept_.call.collective = Collective::kExchange;
  kept_.call.on_gpus = !transfers.empty() && transfers[0].tensor.device().is_cuda();
}

CollectiveCall RecordedCall::Common() const {
  CollectiveCall call = kept_.View();
  if (call.dim < 0 && HasDim(call.collective)) call.dim += static_cast<int>(call.shape.size());
  // Each rank has its own sizes of an all_to_all_v.
  if (call.collective == Collective::kAllToAllV) call.sizes = {};
  call.output_sizes = {};
  return call;
}

absl::Status RecordedCall::Run(Group& group, const CallOptions& options) const {
  if (is_message()) return group.Exchange(transfers_, options);
  return group.Run(kept_.View(), kept_.input, kept_.output, options);
}

absl::StatusOr<RecordedCalls> RecordCalls(Group& group,
                                          absl::FunctionRef<absl::Status(Group&)> body,
                                          const CallOptions& options) {
  Recorder recorder(group);
  absl::Status status = body(recorder);
  if (status.ok()) status = recorder.first_error();
  // A rank that could not record calls it, too, so that the others get an error.
  COHORT_ASSIGN_OR_RETURN(
      const Sizes digests,
      group.ExchangeSizes(status.ok() ? DigestOf(recorder.calls()) : 0, options));
  const bool same = std::all_of(digests.begin(), digests.end(),
                                [&](int64_t other) { return other == digests[0]; });
  if (same && status.ok()) return std::move(recorder.calls());
  const std::string own =
      status.ok()
          ? LinesOf(recorder.calls())
          : absl::StrReplaceAll(absl::StrCat("not recorded: ", status.message()), {{"\n", " "}});
  const absl::Status difference = ExplainDifference(group, own, options);
  return status.ok() ? difference : status;
}

int64_t DigestOf(const RecordedCalls& calls) {
  Fingerprint digest;
  for (const RecordedCall& call : calls) {
    if (!call.is_message()) digest.Add(Digest(call.Common()));
  }
  return static_cast<int64_t>(digest.value() >> 1);  // not negative
}

}  // namespace cohort::client
