// What one rank sends another, with a header that says what comes: a note and tensors of any types
// and shapes, which the receiver need not know before.
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

// The tensors into which a message is received, of the announced types, shapes and places, in any
// layout; or why it is not wanted: then that is the receiver's error, and the sender's, if it still
// waits. None given: new tensors of Allocate, contiguous. Called once the message has been
// announced, at most once for each.
using Accept = std::function<absl::StatusOr<std::vector<Tensor>>(
    const std::string& note, const std::vector<TensorMeta>& metas)>;

struct MessageSend {
  int peer = 0;
  int channel = 0;
  Message message;
  // Also a small message waits until its receiver has accepted it, if it has any elements.
  bool awaited = false;
  // If not OK: why there is no message. The receiver has it in place of one, and so has the sender.
  absl::Status failure;
};

struct MessageReceive {
  int peer = 0;
  int channel = 0;
  Accept accept;
};

struct MessagesOptions {
  // A received message that announces more is refused: its sender hears it too.
  int64_t max_message_bytes = int64_t{16} << 30;
  // What is kept of messages that came before somebody asked for them.
  int64_t max_kept_bytes = int64_t{1} << 30;
  int max_kept_messages = 1024;
};

// Messages of one rank with the others of a group, which is borrowed. While messages between two
// ranks are under way, they use the group for nothing else with each other. One object per group
// and rank, which lives as long as the others' do, or all ranks make new ones: two of them remember
// how their next messages come. One thread at a time: other threads by client::AsyncCalls.
//
// - Peers are ranks in the group, channels 0..2^31-1. Messages of one channel arrive in the order
//   sent; receives of different channels may be posted in any order, whatever was sent first.
// - A send of a few KiB in memory of the host returns once it is on its way, while there is room: of
//   ranks that only send, in a circle, none of which has asked the one before it for anything yet,
//   each waits for the next from its third to ninth message on. A larger one waits
//   until the receiver waits for a message of this rank: what it has not asked for it keeps. So two
//   ranks may send to each other first and receive then.
// - Tensors have any strides, sent ones and those to receive into. Those of new memory do not alias
//   each other's. Empty tensors, tensors of no dimensions and messages of no tensors are fine.
// - On groups with GPUs a tensor is received where it was sent from: host or GPU. In groups whose
//   placement is device, notes and tensors of the host travel through the coordinator.
//
// Errors of all; those of the group besides, which name the rank
//
//   INVALID_ARGUMENT    a peer that is no other rank, a negative channel: nobody hears of it. A
//                       tensor that cannot be sent: the receiver hears it, too. What came is no
//                       message, or is of another version. What Accept gave does not fit.
//   RESOURCE_EXHAUSTED  a message above max_message_bytes, or more to be kept than allowed.
//   DEADLINE_EXCEEDED   the peer did not come in time: names it. The group is broken.
//   ABORTED             the group has ended; or, behind an error in the midst of a message, what it
//                       was. Rejoin: messages of the generation before are gone.
//
// What one message's error says does not touch the others of the same call: they are sent all the
// same, and what was received stays for the next Receive.
class Messages {
 public:
  // `group` outlives it.
  explicit Messages(client::Group& group, const MessagesOptions& options = {});
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  client::Group& group() const;

  // To `peer`, which calls Receive. The tensors are read until it returns.
  absl::Status Send(int peer, int channel, const Message& message,
                    const client::CallOptions& options = {});
  // The next message of `peer` on `channel`; without `accept` in new tensors.
  absl::StatusOr<Message> Receive(int peer, int channel, const client::CallOptions& options = {},
                                  const Accept& accept = nullptr);
  // Any sends and receives, none of which waits for another. Answers those received, by the order
  // of `receives`.
  absl::StatusOr<std::vector<Message>> Exchange(const std::vector<MessageSend>& sends,
                                                const std::vector<MessageReceive>& receives,
                                                const client::CallOptions& options = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MESSAGES_MESSAGES_H_
