#include "client/collective/recording.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace cohort::client {
namespace {

// FNV-1a, the same in all processes.
class Digest {
 public:
  void Add(absl::string_view text) {
    for (const char c : text) Add(c);
    Add('\0');
  }
  // A digest as a size, which is not negative.
  int64_t value() const { return static_cast<int64_t>(state_ >> 1); }

 private:
  void Add(char c) { state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001B3u; }

  uint64_t state_ = 0xCBF29CE484222325u;
};

// A collective with its arguments, to run again.
class KeptCall {
 public:
  KeptCall(const CollectiveCall& call, const Tensor& input, const Tensor& output)
      : call_(call),
        input_(input),
        output_(output),
        sizes_(call.sizes.begin(), call.sizes.end()),
        output_sizes_(call.output_sizes.begin(), call.output_sizes.end()) {}

  absl::Status operator()(Group& group, const CallOptions& options) const {
    CollectiveCall call = call_;
    call.shape = MakeCall(call.collective, input_, output_).shape;
    call.sizes = sizes_;
    call.output_sizes = output_sizes_;
    return group.Run(call, input_, output_, options);
  }

 private:
  CollectiveCall call_;  // its spans belong to the caller of the recorded call
  Tensor input_;
  Tensor output_;
  Sizes sizes_;
  Sizes output_sizes_;
};

// The text that all ranks compare: dimensions count from the front, and each rank has its own sizes
// of an all_to_all_v.
std::string Text(const CollectiveCall& call) {
  CollectiveCall common = call;
  if (common.dim < 0 && HasDim(call.collective)) {
    common.dim += static_cast<int>(common.shape.size());
  }
  if (call.collective == Collective::kAllToAllV) common.sizes = {};
  return Describe(common);
}

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
    return Note(Text(call), options, KeptCall(call, input, output));
  }
  absl::Status Exchange(absl::Span<const TensorTransfer> transfers,
                        const CallOptions& options) override {
    const std::vector<TensorTransfer> kept(transfers.begin(), transfers.end());
    for (const TensorTransfer& one : kept) {
      if (one.tensor.device().is_host()) return NotRecorded("Exchange in host memory");
    }
    return Note("", options, [kept](Group& group, const CallOptions& at_capture) {
      return group.Exchange(kept, at_capture);
    });
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

  template <typename Run>
  absl::Status Note(std::string text, const CallOptions& options, Run run) {
    if (options.timeout.has_value() || options.stream.has_value())
      return NotRecorded("CallOptions");
    calls_.push_back({std::move(text), std::move(run)});
    return absl::OkStatus();
  }

  const Group& group_;
  RecordedCalls calls_;
  absl::Status first_error_;
};

// The calls that all ranks have in common, numbered from 1; messages are not among them.
std::vector<absl::string_view> Common(const RecordedCalls& calls) {
  std::vector<absl::string_view> texts;
  for (const RecordedCall& call : calls) {
    if (!call.text.empty()) texts.push_back(call.text);
  }
  return texts;
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

absl::StatusOr<RecordedCalls> RecordCalls(Group& group,
                                          absl::FunctionRef<absl::Status(Group&)> body,
                                          const CallOptions& options) {
  Recorder recorder(group);
  absl::Status status = body(recorder);
  if (status.ok()) status = recorder.first_error();
  const std::vector<absl::string_view> common = Common(recorder.calls());
  // A rank that could not record calls it, too, so that the others get an error.
  COHORT_ASSIGN_OR_RETURN(
      const Sizes digests,
      group.ExchangeSizes(status.ok() ? DigestOf(recorder.calls()) : 0, options));
  const bool same = std::all_of(digests.begin(), digests.end(),
                                [&](int64_t other) { return other == digests[0]; });
  if (same && status.ok()) return std::move(recorder.calls());
  const std::string own =
      status.ok()
          ? absl::StrJoin(common, "\n")
          : absl::StrReplaceAll(absl::StrCat("not recorded: ", status.message()), {{"\n", " "}});
  const absl::Status difference = ExplainDifference(group, own, options);
  return status.ok() ? difference : status;
}

int64_t DigestOf(const RecordedCalls& calls) {
  Digest digest;
  for (const absl::string_view text : Common(calls)) digest.Add(text);
  return digest.value();
}

}  // namespace cohort::client
