// Messages from one rank to another: a note and tensors of any types and shapes. A header describes
// them, so the receiver need not know them in advance.
#ifndef COHORT_CLIENT_PARALLEL_MESSAGES_MESSAGES_H_
#define COHORT_CLIENT_PARALLEL_MESSAGES_MESSAGES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/collective/group.h"
#include "client/parallel/messages/tensor_meta.h"

namespace cohort::parallel {

// Channels. Messages of two channels never mix. Two users of one channel receive each other's
// messages, so each part of this library that sends has a channel of its own:
//
//   0                    Send and Receive (client/parallel/collectives/send_receive.h), and
//                        MessageSend and MessageReceive that give no channel
//   kPipelineChannel     Pipeline, which uses this one and the next two (client/parallel/pipeline)
//   kRingChannel         RingShift (client/parallel/pipeline/ring_shift.h)
//   kTensorMapChannel    tensor maps and objects (client/parallel/tensor_map/send_receive.h)
//
// Channels 1 to 15 are free for programs.
struct Message {
  std::string note;
  std::vector<Tensor> tensors;
};

// Returns the tensors into which a message is received: of the announced types, shapes and places,
// in any layout. Or an error, if the receiver does not want the message: the receiver gets that
// error, and so does the sender if it still waits. An empty function stands for new contiguous
// tensors from Allocate. It is called after the message was announced, at most once for each
// message.
using Accept = std::function<absl::StatusOr<std::vector<Tensor>>(
    const std::string& note, const std::vector<TensorMeta>& metas)>;

struct MessageSend {
  int peer = 0;
  int channel = 0;
  Message message;
  // If true, a small message with elements also waits until its receiver has accepted it.
  bool awaited = false;
  // If not OK: why there is no message. The receiver gets this error instead of a message, and so
  // does the sender.
  absl::Status failure;
};

struct MessageReceive {
  int peer = 0;
  int channel = 0;
  Accept accept;
  // If true, a message that arrived in a call with an error stays for the next Receive. If false,
  // the call drops it.
  bool kept_on_error = true;
};

struct MessagesOptions {
  // A message that announces more bytes is refused; its sender gets the error, too.
  int64_t max_message_bytes = int64_t{16} << 30;
  // Limits of the messages that have arrived and that no call has asked for yet.
  int64_t max_kept_bytes = int64_t{1} << 30;
  int max_kept_messages = 1024;
};

// Sends and receives the messages of one rank in a group. While messages between two ranks are
// under way, the two use the group for nothing else with each other. Each rank makes one Messages
// object for a group. Either all ranks keep their objects, or all make new ones: the objects of two
// ranks share a state. One thread at a time calls it; several threads use client::AsyncCalls.
//
// - Peers are ranks in the group, channels 0..2^31-1. Messages of one channel arrive in the order
//   sent. Receives of different channels may be posted in any order.
// - A send of a few KiB in host memory returns once it is on its way, while there is room. If ranks
//   in a circle only send, and none has asked the rank before it for anything yet, each blocks from
//   its third to ninth message on.
// - A larger send waits until the receiver waits for any message of this rank. The receiver keeps
//   messages that no call has asked for yet. So two ranks may both send first and then receive.
// - Tensors to send or to receive into have any strides. New tensors do not alias each other. Empty
//   tensors, tensors without dimensions and messages without tensors are legal.
// - In groups with GPUs a tensor arrives in the kind of place that it was sent from: host or GPU.
//   In groups whose placement is device, notes and host tensors travel through the coordinator.
//
// Errors of all, besides those of the group, which name the rank
//
//   INVALID_ARGUMENT    The peer is not another rank, or the channel is negative: the other rank
//                       gets no error. A tensor cannot be sent: the receiver gets the error, too.
//                       The received bytes are not a message, or have another version. The tensors
//                       that Accept returned do not fit.
//   RESOURCE_EXHAUSTED  A message above max_message_bytes, or more to keep than allowed.
//   DEADLINE_EXCEEDED   The peer did not come in time: names it. The group is broken.
//   ABORTED             The group has ended, or an earlier call failed in the middle of a message;
//                       the text has that error. Rejoin: messages of the old generation are gone.
//
// An error of one message does not affect the other messages of the call: this rank sends them, and
// the received ones stay for the next Receive, unless kept_on_error is false.
class Messages {
 public:
  // `group` outlives it.
  explicit Messages(client::Group& group, const MessagesOptions& options = {});
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  client::Group& group() const;

  // Sends to `peer`, which calls Receive. The tensors are read until it returns.
  absl::Status Send(int peer, int channel, const Message& message,
                    const client::CallOptions& options = {});
  // Returns the next message of `peer` on `channel`; without `accept` in new tensors.
  absl::StatusOr<Message> Receive(int peer, int channel, const client::CallOptions& options = {},
                                  const Accept& accept = nullptr);
  // Sends and receives several messages, none of which waits for another. Returns the received
  // messages in the order of `receives`.
  absl::StatusOr<std::vector<Message>> Exchange(const std::vector<MessageSend>& sends,
                                                const std::vector<MessageReceive>& receives,
                                                const client::CallOptions& options = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MESSAGES_MESSAGES_H_
