// What the stages of a pipeline send each other: activations forward, gradients backward.
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
#include "base/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/messages/messages.h"
#include "client/parallel/messages/pending.h"
#include "client/parallel/messages/tensor_meta.h"
#include "client/parallel/tensor_map/deadline.h"

namespace cohort::parallel {

// One, or several: what one stage sends another in one transfer.
using Tensors = std::vector<Tensor>;

// Of one tensor; what is absent may be anything.
struct Expected {
  std::optional<DataType> type;
  std::optional<Shape> shape;
};

// The tensors that were received last, to be received into again as long as types, shapes and
// places stay what they are: nothing is allocated then. What was received before is overwritten.
struct ReceiveCache {
  Tensors tensors;
};

struct PipelineReceive {
  // By tensor; none: whatever comes. Others than these are INVALID_ARGUMENT.
  std::vector<Expected> expected;
  // If not null, results are the cache's. Else they are new memory.
  ReceiveCache* cache = nullptr;
};

// The first of the three channels of a Pipeline, unless its options give others.
inline constexpr int kPipelineChannel = 0x506970;

struct PipelineOptions {
  // Ranks in the group; absent: the neighbours. A stage that is given one is no end there.
  std::optional<int> next_rank;
  std::optional<int> prev_rank;
  // Of the calls for rings alone: the last stage's next one is the first, and so on.
  bool wrap = false;
  // Of those with whom tensors can be scattered and gathered; outlives the pipeline.
  client::Group* tensor_group = nullptr;
  // The first of three channels of the messages. Two pipelines on the same Messages need channels
  // of their own.
  int channel = kPipelineChannel;
};

// Of one call.
struct PipelineCall {
  std::optional<int> next_rank;  // in place of the pipeline's
  std::optional<int> prev_rank;
  // All members of the tensor group send the same tensors: each sends a slice of the elements, and
  // the receivers gather them. Who receives sets it, too: the members of its tensor group tell each
  // other which micro-batch they have, one exchange of a number, or why they have none. A tensor
  // goes whole if its elements do not divide by the group's size; so do tensors of no elements, and
  // those of a group of one. The sender says in the message which tensors go whole.
  bool scatter_gather_tensors = false;
  // If not empty: by tensor, which of them are the same on all members. One that is named here and
  // does not divide is INVALID_ARGUMENT.
  std::vector<bool> scattered;
  client::CallOptions options;
};

// A rank of a group is a stage: stage 0 is the first. Those below are ColossalAI's functions of the
// same names, without their guesses:
//
// - What is received has the type and shape that it was sent with, one tensor or a list, of any
//   layout, on the host or on a GPU. Results are contiguous and do not alias each other.
// - Forward and backward transfers are apart from each other, also where the next stage is the
//   previous one: neither waits for the other, whatever the order in which the two sides call.
//   Those of one direction arrive in the order sent. The transfers of one call do not wait for each
//   other.
// - Only the two stages of a transfer call. A call blocks until what it sends was taken, or, if it
//   is a few KiB, is on its way, and what it receives is there. Async starts calls that do not.
//
// The ends. RecvForward answers none on the first stage, RecvBackward on the last, and there
// SendForward, as SendBackward on the first, sends nothing. Combined calls with an end have no side
// to take: SendForwardRecvBackward answers none on the last stage, SendBackwardRecvForward on the
// first, where they are given nothing to send. The three that send and receive in one direction are
// for rings: they have no ends to look at, so `wrap` or peers have to say who the neighbours are.
// Where a tensor would be dropped, or nobody could send one, it is FAILED_PRECONDITION, and nothing
// has been sent.
//
// A call's timeout is of all that it does. Where the receive of one member of a tensor group fails,
// it fails on all of them, and what this call received in the other direction is dropped on all:
// the next call gathers the slices of one micro-batch again.
//
// Errors of all
//
//   INVALID_ARGUMENT     expected something else: names what both sides have. The sender hears it,
//                        if it waits. Peers that are no other rank. Tensors that cannot be sent;
//                        tensors that `scattered` names and that do not divide; two stages with
//                        tensor groups of different sizes: both sides hear of these.
//   FAILED_PRECONDITION  see above; scattered tensors without a tensor group.
//   ABORTED              members of the tensor group have slices of different micro-batches, as
//                        after a timeout of some of them: names who has which. Rejoin both groups.
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

  // Sends `output` to the next stage, and receives its gradient; `recv_next` false: sends alone.
  struct ForwardBackward {
    std::optional<Tensors> output;
    PipelineReceive output_gradient;
    bool recv_next = true;
  };
  absl::StatusOr<std::optional<Tensors>> SendForwardRecvBackward(const ForwardBackward& what,
                                                                 const PipelineCall& call = {});
  // Sends `input_gradient` to the previous stage, and receives its next input.
  struct BackwardForward {
    std::optional<Tensors> input_gradient;
    PipelineReceive input;
    bool recv_prev = true;
  };
  absl::StatusOr<std::optional<Tensors>> SendBackwardRecvForward(const BackwardForward& what,
                                                                 const PipelineCall& call = {});

  // Sends `output`, if there is one, to the next stage, and receives from the previous one.
  struct ForwardForward {
    std::optional<Tensors> output;
    PipelineReceive input;
    bool recv_prev = true;
  };
  absl::StatusOr<std::optional<Tensors>> SendForwardRecvForward(const ForwardForward& what,
                                                                const PipelineCall& call = {});
  // Sends `input_gradient`, if there is one, to the previous stage, and receives from the next one.
  struct BackwardBackward {
    std::optional<Tensors> input_gradient;
    PipelineReceive output_gradient;
    bool recv_next = true;
  };
  absl::StatusOr<std::optional<Tensors>> SendBackwardRecvBackward(const BackwardBackward& what,
                                                                  const PipelineCall& call = {});
  // Both of these.
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

  // What the next stage will get, apart from the elements; nothing is sent unless `need_meta`.
  // Answers false: what to give as `need_meta` as long as types and shapes stay the same. Transfers
  // say themselves what comes, so this is for those who want to know it before.
  absl::StatusOr<bool> SendTensorMeta(const Tensors& tensors, bool need_meta = true,
                                      const PipelineCall& call = {});
  // `known`, if given, without asking anybody; else what the previous stage tells. As many as it
  // tells of, and of each its type, too. One that was sent and is not received stays for the next.
  absl::StatusOr<std::vector<TensorMeta>> RecvTensorMeta(
      const std::optional<std::vector<TensorMeta>>& known = std::nullopt,
      const PipelineCall& call = {});

  // Any of the above, behind the calls that `calls` of the same group have been given before:
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
  // As it, of calls that answer nothing.
  client::PendingCall AsyncSend(client::AsyncCalls& calls,
                                std::function<absl::Status(Pipeline&)> body) {
    return calls.Start([this, body = std::move(body)](client::Group&) { return body(*this); });
  }

 private:
  enum class Side { kNext, kPrevious };

  std::optional<int> PeerOf(Side side, const PipelineCall& call, bool wrap) const;
  // Forward: what is sent to the next stage, and received from the previous one.
  int ChannelOf(bool forward) const { return options_.channel + (forward ? 0 : 1); }
  int MetaChannel() const { return options_.channel + 2; }
  // FAILED_PRECONDITION: there is nobody on that side.
  absl::Status NobodyThere(Side side, absl::string_view what) const;
  // `copies`: what it made of tensors whose slices do not lie together.
  MessageSend SendOf(const Tensors& tensors, int peer, bool forward, const PipelineCall& call,
                     const Deadline& deadline, Tensors& copies);
  // Of the next message to `peer` whose tensors may be cut.
  uint32_t NextNumber(int peer, bool forward);
  // Of one call; null: there is none.
  struct Transfers {
    const Tensors* output = nullptr;
    const Tensors* input_gradient = nullptr;
    const PipelineReceive* input = nullptr;
    const PipelineReceive* output_gradient = nullptr;
  };
  // Their peers are there.
  absl::StatusOr<Received> Run(const Transfers& transfers, const PipelineCall& call, bool wrap);

  Messages& messages_;
  const PipelineOptions options_;
  // By peer and direction, what Slices::number counts, in a generation of the messages' group.
  std::map<std::pair<int, bool>, uint32_t> sent_;
  int64_t sent_generation_ = 0;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_PIPELINE_PIPELINE_H_
