// Sends and receives of messages that go on beside each other, until all are done.
//
// A message that fits goes at once, with its announcement. A larger one is announced and waits
// until its receiver grants it. Then the sender sends a kGo frame and the granted bytes in one call
// of the group, and stays in it until the receiver has taken them. During that call the sender
// handles no other frame, so the order in which ranks enter it matters:
//
// - A rank holds the grant that it gave until the granted bytes have arrived. It gives a peer one
//   grant at a time, and sends that peer nothing else until then.
// - A sender that got a grant goes at once, unless it holds grants itself. Then it goes only to
//   ranks that are after it in an order of all ranks (GoesBefore); before it goes to the others, it
//   takes the bytes that it granted.
//
// This does not deadlock. In a circle of ranks that go and block, each has granted the rank before
// it. So one of them would go against the order while it holds a grant, which it does not do. Ranks
// that hold back wait for ranks that may go.
#ifndef COHORT_CLIENT_PARALLEL_MESSAGES_MESSAGE_CALL_H_
#define COHORT_CLIENT_PARALLEL_MESSAGES_MESSAGE_CALL_H_

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "client/collective/call_deadline.h"
#include "client/collective/group.h"
#include "client/parallel/messages/frame_transport.h"
#include "client/parallel/messages/message_frame.h"
#include "client/parallel/messages/messages.h"

namespace cohort::parallel {

// An order of two ranks, by the lowest bit in which they differ: neighbours of a ring alternate.
constexpr bool GoesBefore(int a, int b) {
  const int differ = a ^ b;
  return (a & differ & -differ) == 0;
}

// A message that was announced to this rank, and its state.
struct Arrival {
  enum class Stage {
    kAnnounced,  // its body waits for a grant
    kBodyGranted,
    kDescribed,  // the body is here; the places of its tensors are not decided
    kGranted,    // its tensors are on the way
    kComplete,
    kFailed,
    kRejected,
  };

  absl::string_view body_bytes() const {
    return frame.body_later ? absl::string_view(static_cast<const char*>(late_body.data()),
                                                static_cast<size_t>(late_body.bytes()))
                            : frame.body();
  }

  int peer = 0;
  Frame frame;
  Tensor late_body;
  Body body;
  Stage stage = Stage::kDescribed;
  bool claimed = false;   // by a receive
  bool accepted = false;  // `tensors` are what the receive wanted
  int64_t kept_bytes = 0;
  std::vector<Tensor> tensors;
  // The error of kFailed and kRejected; also why a described message will be rejected.
  absl::Status error;
};

// The state that one rank keeps between calls.
struct MessageState {
  struct Peer {
    bool known = false;           // this rank has sent to it or received from it
    uint64_t sent = 0;            // messages sent to it
    int unlooked = 0;             // units of Wire::kRoom since the last TakeIn
    std::list<Arrival> arrivals;  // in their order
    Arrival* granted = nullptr;
  };

  MessageState(client::Group& group, const MessagesOptions& options)
      : group(group), options(options), wire(group) {}

  client::Group& group;
  const MessagesOptions options;
  Wire wire;
  int64_t generation = -1;
  absl::Status broken;
  std::vector<Peer> peers;  // by rank
  // The peers to which this rank has given a grant. A rank does not leave a call with a grant: the
  // peer sends the granted bytes while this rank is elsewhere.
  absl::InlinedVector<int, 4> granted;
  // The messages that no receive has claimed.
  int kept_messages = 0;
  int64_t kept_bytes = 0;
};

// One call. Its arguments outlive it.
class MessageCall {
 public:
  MessageCall(MessageState& state, const client::CallOptions& options);

  // `failure`: see MessageSend.
  void Add(int peer, int channel, const Message& message, bool awaited,
           const absl::Status& failure);
  // `accept` may be empty. `kept_on_error`: see MessageReceive.
  void Add(int peer, int channel, const Accept& accept, bool kept_on_error);
  absl::Status Run();
  // After Run returned OK: the received messages, in the order in which receives were added.
  Message& received(size_t index) { return ins_[index].message; }

 private:
  enum class SendStage { kNew, kWaiting, kGranted, kDone };
  struct Out {
    int peer = 0;
    int channel = 0;
    const Message* message = nullptr;
    bool awaited = false;
    const absl::Status* failure = nullptr;
    Frame frame;
    Tensor body;  // a body that goes later; empty once it has gone
    absl::InlinedVector<const Tensor*, 2> large;
    SendStage stage = SendStage::kNew;
    absl::Status status;
  };
  struct In {
    int peer = 0;
    int channel = 0;
    const Accept* accept = nullptr;
    bool kept_on_error = true;
    Arrival* arrival = nullptr;
    bool done = false;
    bool accepted = false;  // the caller gave the message's tensors
    absl::Status status;
    Message message;
  };

  MessageState::Peer& peer(int rank) { return state_.peers[static_cast<size_t>(rank)]; }
  absl::Status CheckPeer(int peer, int channel) const;

  absl::Status Drive();
  void Prepare(Out& out);
  // Whether the tensors above the packed size go behind their frame, if the frame may go at once.
  bool GoesBehind(const std::vector<Tensor>& tensors) const;
  absl::Status CheckTensors(const std::vector<Tensor>& tensors) const;
  absl::Status Announce();
  // Called before a frame that takes `room` units of Wire::kRoom goes to `to`. Takes in the frames
  // that have arrived, if needed, so that ranks do not wait for each other's room.
  absl::Status MakeRoom(int to, int room);
  absl::Status TakeIn();
  absl::Status CheckKept() const;
  int64_t MostOfAnObject() const;
  // Sends one frame alone, an answer to the peer.
  absl::Status Answer(int to, Frame frame);
  absl::Status Advance();
  // Takes a message that no receive of this call claims, if its sender waits for it and this rank
  // waits for the sender. Returns whether it did something.
  absl::StatusOr<bool> TakeUnasked(int peer);
  void Claim(In& in);
  bool MayGo(int peer) const;
  absl::Status Go(Out& out);
  // The peers of which this call still awaits something.
  using Ranks = absl::InlinedVector<int, 8>;
  Ranks Open();
  absl::Status OnFrame(Wire::Came came);
  absl::Status OnAnswer(const Wire::Came& came);
  absl::Status OutOfSequence(const Wire::Came& came) const;
  // Ends this call with the error. Later calls end, too, unless this call only waited.
  void Break(const absl::Status& status);
  absl::Status Ended(const absl::Status& why) const;

  // --- Arrivals.

  absl::Status OnMessage(Wire::Came came);
  // Takes the elements behind the frame of a described message into their places.
  absl::Status TakeBehind(Arrival& arrival);
  absl::Status OnGo(const Wire::Came& came);
  // Decodes the body, which has arrived.
  static void Describe(Arrival& arrival);
  // Whether its sender waits for an answer.
  static bool IsAwaited(const Arrival& arrival);
  // Does the next step that the arrival needs before more of it can come. Returns whether it did
  // one.
  absl::StatusOr<bool> Serve(Arrival& arrival);
  absl::Status CheckRoom(const Arrival& arrival) const;
  absl::Status Place(Arrival& arrival);
  absl::StatusOr<std::vector<Tensor>> Accepted(const Accept& accept, const Body& body) const;
  absl::Status Grant(Arrival& arrival, Arrival::Stage stage);
  // Drops the message. The receiver gets the error `why`, and so does the sender if it waits.
  absl::Status Reject(Arrival& arrival, const absl::Status& why);
  // Gives the receive its message, if all of it has arrived.
  void Deliver(In& in);
  void Keep(Arrival& arrival, int64_t bytes);
  // Keeps a message that arrived, or began to, in a call with an error, for the next receive. Drops
  // one that arrived, if its receive asks for that.
  void PutBack(In& in);
  // Replaces tensors that the caller gave by new ones with the same elements.
  absl::Status Disown(std::vector<Tensor>& tensors) const;
  // Drops the rejected messages that no receive has claimed.
  void Forget(int peer);

  MessageState& state_;
  client::Group& group_;
  const client::CallDeadline deadline_;
  absl::InlinedVector<Out, 1> outs_;
  absl::InlinedVector<In, 1> ins_;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MESSAGES_MESSAGE_CALL_H_
