// Transfers between the stages of a pipeline: activations go forward, gradients go backward.
#ifndef COHORT_CLIENT_PARALLEL_PIPELINE_PIPELINE_H_
#define COHORT_CLIENT_PARALLEL_PIPELINE_PIPELINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/tensor/tensor.h"
#include "client/collective/call_deadline.h"
#include "client/collective/group.h"
#include "client/parallel/messages/messages.h"
#include "client/parallel/messages/pending_call.h"
#include "client/parallel/messages/tensor_meta.h"

namespace cohort::parallel {

// One or several tensors that one stage sends another in one transfer.
using Tensors = std::vector<Tensor>;

// The requirements of a receiver for one tensor; an absent field allows anything.
struct Expected {
  std::optional<DataType> type;
  std::optional<Shape> shape;
};

// The tensors that were received last. The next call receives into them again as long as types,
// shapes and places stay the same, and allocates nothing. It overwrites their elements.
struct ReceiveCache {
  Tensors tensors;
};

struct PipelineReceive {
  // By tensor. Empty: any tensors. Tensors that differ from these are INVALID_ARGUMENT.
  std::vector<Expected> expected;
  // If not null, the results are the cache's tensors. Otherwise they are new memory.
  ReceiveCache* cache = nullptr;
};

// The first of the three channels of a Pipeline, unless its options give others.
inline constexpr int kPipelineChannel = 0x506970;

struct PipelineOptions {
  // Ranks in the group; absent: the neighbours. A stage with a given next or previous rank is not
  // an end of the pipeline on that side.
  std::optional<int> next_rank;
  std::optional<int> prev_rank;
  // Only for the three calls of rings and the two of tensor metas: the last stage's next stage is
  // the first, and the first stage's previous one is the last.
  bool wrap = false;
  // The group within which tensors can be scattered and gathered; outlives the pipeline.
  client::Group* tensor_group = nullptr;
  // The first of three channels of the messages. Two pipelines on the same Messages need channels
  // of their own.
  int channel = kPipelineChannel;
};

// Options of one call.
struct PipelineCall {
  std::optional<int> next_rank;  // in place of the pipeline's
  std::optional<int> prev_rank;
  // All members of the tensor group send the same tensors: each sends a slice of the elements, and
  // the receivers gather the slices. The receiving stage sets it, too. The members of its tensor
  // group exchange one number: the micro-batch that each has. A member without a slice tells them
  // why instead. A tensor travels whole if its elements do not divide by the group's size; so do
  // empty tensors, and all tensors of a group of one. The sender's message names the whole ones.
  bool scatter_gather_tensors = false;
  // If not empty: by tensor, whether it is the same on all members. A tensor that is named here and
  // does not divide is INVALID_ARGUMENT.
  std::vector<bool> scattered;
  // If not OK: why this stage has no tensors to send. The receivers get this error in place of the
  // tensors, and the call returns it. The call should receive nothing.
  absl::Status failure;
  client::CallOptions options;
};

// The pipeline of one rank. A rank of the group is a stage; stage 0 is the first. The methods are
// ColossalAI's functions of the same names, without their guesses:
//
// - A stage receives one tensor or a list, with the types and shapes that were sent. Tensors to
//   send have any layout and lie on the host or on a GPU. Results are contiguous and do not
//   alias each other.
// - Forward and backward transfers do not mix, even if the next stage is also the previous one:
//   neither waits for the other, in whatever order the two sides call. Transfers of one direction
//   arrive in the order sent. The transfers of one call do not wait for each other.
// - Only the two stages of a transfer call. A call blocks until its tensors to receive have arrived
//   and the receiver has taken the sent ones. Sent tensors of a few KiB need only be on their way.
//   Async starts calls without blocking.
//
// The ends. On the first stage RecvForward returns nothing and SendBackward sends nothing. On the
// last stage RecvBackward returns nothing and SendForward sends nothing. There
// SendForwardRecvBackward (last stage) and SendBackwardRecvForward (first stage) return nothing if
// they have nothing to send. The three methods that send and receive in one direction are for
// rings. They do not look for ends, so `wrap` or given peers have to name the neighbours. In these
// five methods and those of tensor metas, a tensor that no stage can take or send is
// FAILED_PRECONDITION, and the call sends nothing.
//
// The timeout limits the whole call. If the receive of one member of a tensor group fails, it fails
// on all members. All of them also drop the tensors that this call received in the other direction:
// the next call gathers the slices of one micro-batch again.
//
// Errors of all
//
//   INVALID_ARGUMENT     The tensors differ from the expected ones: names what both sides have. The
//                        sender gets the error, too, if it still waits. A peer is not another rank.
//                        Tensors cannot be sent; tensors that `scattered` names do not divide; the
//                        two stages have tensor groups of different sizes: both sides get these
//                        errors.
//   FAILED_PRECONDITION  see above; scattered tensors without a tensor group.
//   ABORTED              Members of the tensor group have slices of different micro-batches, for
//                        example after a timeout of some of them: names which member has which.
//                        Rejoin both groups.
//   Others are those of Messages, and of AllGather in the tensor group.
class Pipeline {
 public:
  // `messages` outlives it.
  explicit Pipeline(Messages& messages, PipelineOptions options = {});

  int stage() const { return messages_.group().rank(); }
  int stages() const { return messages_.group().size(); }
  bool is_first() const { return !PeerOf(Side::kPrevious, {}, false).has_value(); }
  bool is_last() const { return !PeerOf(Side::kNext, {}, false).has_value(); }

  absl::StatusOr<std::optional<Tensors>> RecvForward(const PipelineReceive& input = {},
                                                     const PipelineCall& call = {});
  absl::StatusOr<std::optional<Tensors>> RecvBackward(const PipelineReceive& gradient = {},
                                                      const PipelineCall& call = {});
  absl::Status SendForward(const Tensors& output, const PipelineCall& call = {});
  absl::Status SendBackward(const Tensors& gradient, const PipelineCall& call = {});

  // Sends `output` to the next stage and receives its gradient. With `recv_next` false it only
  // sends.
  struct ForwardBackward {
    std::optional<Tensors> output;
    PipelineReceive output_gradient;
    bool recv_next = true;
  };
  absl::StatusOr<std::optional<Tensors>> SendForwardRecvBackward(const ForwardBackward& what,
                                                                 const PipelineCall& call = {});
  // Sends `input_gradient` to the previous stage and receives the next input from it.
  struct BackwardForward {
    std::optional<Tensors> input_gradient;
    PipelineReceive input;
    bool recv_prev = true;
  };
  absl::StatusOr<std::optional<Tensors>> SendBackwardRecvForward(const BackwardForward& what,
                                                                 const PipelineCall& call = {});

  // Sends `output`, if there is one, to the next stage and receives from the previous stage.
  struct ForwardForward {
    std::optional<Tensors> output;
    PipelineReceive input;
    bool recv_prev = true;
  };
  absl::StatusOr<std::optional<Tensors>> SendForwardRecvForward(const ForwardForward& what,
                                                                const PipelineCall& call = {});
  // Sends `input_gradient`, if there is one, to the previous stage and receives from the next
  // stage.
  struct BackwardBackward {
    std::optional<Tensors> input_gradient;
    PipelineReceive output_gradient;
    bool recv_next = true;
  };
  absl::StatusOr<std::optional<Tensors>> SendBackwardRecvBackward(const BackwardBackward& what,
                                                                  const PipelineCall& call = {});
  // SendForwardRecvForward and SendBackwardRecvBackward in one call.
  struct Both {
    std::optional<Tensors> output;
    std::optional<Tensors> input_gradient;
    PipelineReceive input;
    PipelineReceive output_gradient;
    bool recv_prev = true;
    bool recv_next = true;
  };
  struct Received {
    std::optional<Tensors> input;
    std::optional<Tensors> output_gradient;
  };
  absl::StatusOr<Received> SendForwardBackwardRecvForwardBackward(const Both& what,
                                                                  const PipelineCall& call = {});

  // Tells the next stage the types and shapes of `tensors`; without `need_meta` it sends nothing.
  // Always returns false: the value to pass as `need_meta` while types and shapes stay the same.
  // Transfers describe their tensors themselves, so only stages that need the shapes in advance
  // call it.
  absl::StatusOr<bool> SendTensorMeta(const Tensors& tensors, bool need_meta = true,
                                      const PipelineCall& call = {});
  // Returns `known`, if given, without a message. Otherwise blocks until the previous stage's
  // SendTensorMeta arrives, and returns the type, shape and place of each of its tensors. A message
  // that no call has received stays for the next call.
  absl::StatusOr<std::vector<TensorMeta>> RecvTensorMeta(
      const std::optional<std::vector<TensorMeta>>& known = std::nullopt,
      const PipelineCall& call = {});

  // Starts any of the calls above, after the calls that were started before on `calls` of the same
  // group:
  //
  //   auto input = pipeline.Async<std::optional<Tensors>>(
  //       calls, [](Pipeline& stage) { return stage.RecvForward(); });
  //   ...
  //   COHORT_ASSIGN_OR_RETURN(std::optional<Tensors> tensors, input.Wait());
  //
  // The pipeline outlives the call.
  template <typename T>
  Pending<T> Async(client::AsyncCalls& calls, std::function<absl::StatusOr<T>(Pipeline&)> body) {
    return Pending<T>::Start(
        calls, [this, body = std::move(body)](client::Group&) { return body(*this); });
  }
  // Like Async, for calls that return only a status.
  client::PendingCall AsyncSend(client::AsyncCalls& calls,
                                std::function<absl::Status(Pipeline&)> body) {
    return calls.Start([this, body = std::move(body)](client::Group&) { return body(*this); });
  }

 private:
  enum class Side { kNext, kPrevious };

  std::optional<int> PeerOf(Side side, const PipelineCall& call, bool wrap) const;
  // Forward: tensors for the next stage and from the previous one.
  int ChannelOf(bool forward) const { return options_.channel + (forward ? 0 : 1); }
  int MetaChannel() const { return options_.channel + 2; }
  // FAILED_PRECONDITION: there is no stage on that side.
  absl::Status NoNeighbour(Side side, absl::string_view what) const;
  // `copies` gets the copies that it made of tensors whose slices are not contiguous.
  MessageSend SendOf(const Tensors& tensors, int peer, bool forward, const PipelineCall& call,
                     const client::CallDeadline& deadline, Tensors& copies);
  // The number of the next message to `peer` whose tensors may be cut.
  uint32_t NextNumber(int peer, bool forward);
  // The tensors of one call; null: no such transfer.
  struct Transfers {
    const Tensors* output = nullptr;
    const Tensors* input_gradient = nullptr;
    const PipelineReceive* input = nullptr;
    const PipelineReceive* output_gradient = nullptr;
  };
  // Precondition: the peers of all `transfers` exist.
  absl::StatusOr<Received> Run(const Transfers& transfers, const PipelineCall& call, bool wrap);

  Messages& messages_;
  const PipelineOptions options_;
  // By peer and direction, the last Slices::number in this generation of the messages' group.
  std::map<std::pair<int, bool>, uint32_t> sent_;
  int64_t sent_generation_ = 0;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_PIPELINE_PIPELINE_H_
