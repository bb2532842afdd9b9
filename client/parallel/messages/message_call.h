// Sends and receives of messages that go on beside each other, until all are done.
//
// A message that fits goes at once, with its announcement. A larger one is announced, waits until
// its receiver grants it, and goes then: a frame that says so, and what was granted, in one call of
// the group, in which the sender stays until the receiver has taken it. In that call nobody hears
// of anything else, so who enters when matters:
//
// - A rank holds the grant that it gave until it has what was granted. It gives a peer one at a
//   time, and sends that peer nothing else until then.
// - Who was granted something goes at once, unless it holds grants itself. Then only towards ranks
//   that are behind it in an order of all ranks (GoesBefore); towards others it takes first.
//
// Ranks that go and do not get on are granted by the next one each: in a circle of them, one would
// go against the order while it holds a grant. Ranks that hold back wait for ranks that may go.
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
#include "client/collective/group.h"
#include "client/parallel/messages/frame.h"
#include "client/parallel/messages/messages.h"
#include "client/parallel/messages/wire.h"

namespace cohort::parallel {

// Of two ranks, by the lowest bit in which they differ: neighbours of a ring alternate.
constexpr bool GoesBefore(int a, int b) {
  const int differ = a ^ b;
  return (a & differ & -differ) == 0;
}

// A message that has been announced to this rank, and what has come of it.
struct Arrival {
  enum class Stage {
    kAnnounced,  // its body is to be granted
    kBodyGranted,
    kDescribed,  // the body is here; where its tensors go is not decided
    kGranted,    // they are on the way
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
  // Of kFailed; and why a described one will be rejected.
  absl::Status error;
};

// What one rank remembers from one call to the next.
struct MessageState {
  struct Peer {
    bool known = false;           // some were sent to it or asked of it
    uint64_t sent = 0;            // messages
    int unlooked = 0;             // of Wire::kRoom, since this rank looked for what all send
    std::list<Arrival> arrivals;  // by their order
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
  // To whom this rank has given a grant. Nobody leaves with one: the peer sends what was granted,
  // and finds this rank elsewhere.
  absl::InlinedVector<int, 4> granted;
  // Of what nobody has claimed.
  int kept_messages = 0;
  int64_t kept_bytes = 0;
};

// One call. What is added to it outlives it.
class MessageCall {
 public:
  MessageCall(MessageState& state, const client::CallOptions& options);

  // `failure`: as MessageSend's.
  void Add(int peer, int channel, const Message& message, bool awaited,
           const absl::Status& failure);
  // `accept` may be empty.
  void Add(int peer, int channel, const Accept& accept);
  absl::Status Run();
  // Once Run was OK: what came, by the order in which receives were added.
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
    Tensor body;  // that comes later; empty once it has gone
    absl::InlinedVector<const Tensor*, 2> large;
    SendStage stage = SendStage::kNew;
    absl::Status status;
  };
  struct In {
    int peer = 0;
    int channel = 0;
    const Accept* accept = nullptr;
    Arrival* arrival = nullptr;
    bool done = false;
    bool accepted = false;  // the message's tensors are the caller's
    absl::Status status;
    Message message;
  };

  MessageState::Peer& peer(int rank) { return state_.peers[static_cast<size_t>(rank)]; }
  absl::Status CheckPeer(int peer, int channel) const;
  // Options of the next wait.
  client::CallOptions Left() const;
  client::CallOptions ByHost() const;

  absl::Status Drive();
  void Prepare(Out& out);
  // Whether the tensors that are more than little go behind a frame with which they could go.
  bool GoesBehind(const std::vector<Tensor>& tensors) const;
  absl::Status CheckTensors(const std::vector<Tensor>& tensors) const;
  absl::Status Announce();
  // Before a frame that takes so much of Wire::kRoom goes to `to`, and nothing else is to go first:
  // takes what has come, so that no ranks wait for each other's room.
  absl::Status MakeRoom(int to, int room);
  absl::Status TakeIn();
  absl::Status CheckKept() const;
  int64_t MostOfAnObject() const;
  // One frame alone, which answers the peer.
  absl::Status Answer(int to, Frame frame);
  absl::Status Advance();
  // A message that no receive of this call claims, if its sender waits, and this rank for it.
  absl::StatusOr<bool> TakeUnasked(int peer);
  void Claim(In& in);
  bool MayGo(int peer) const;
  absl::Status Go(Out& out);
  // Of whom something is awaited.
  using Ranks = absl::InlinedVector<int, 8>;
  Ranks Open();
  absl::Status OnFrame(Wire::Came came);
  absl::Status OnAnswer(const Wire::Came& came);
  absl::Status OutOfTurn(const Wire::Came& came) const;
  // It ends with this error; so do later ones, unless it only waited.
  void Break(const absl::Status& status);
  absl::Status Ended(const absl::Status& why) const;

  // --- Arrivals.

  absl::Status OnMessage(Wire::Came came);
  // Of a described message: takes what is behind its frame, to where it is to be.
  absl::Status TakeBehind(Arrival& arrival);
  absl::Status OnGo(const Wire::Came& came);
  // Reads the body, which is here.
  static void Describe(Arrival& arrival);
  // Whether its sender waits for an answer.
  static bool IsAwaited(const Arrival& arrival);
  // What is to be done before more of it can come. True: something was.
  absl::StatusOr<bool> Serve(Arrival& arrival);
  absl::Status CheckRoom(const Arrival& arrival) const;
  absl::Status Place(Arrival& arrival);
  absl::StatusOr<std::vector<Tensor>> Accepted(const Accept& accept, const Body& body) const;
  absl::Status Grant(Arrival& arrival, Arrival::Stage stage);
  // The message is gone; the receiver's error is `why`, and the sender's, if it waits.
  absl::Status Reject(Arrival& arrival, const absl::Status& why);
  // Gives the receive what has come for it, if all has.
  void Deliver(In& in);
  void Keep(Arrival& arrival, int64_t bytes);
  // What has come, or begun to, beside an error: for the next receive.
  void PutBack(In& in);
  // Its tensors, which are the caller's, as others of the same elements.
  absl::Status Disown(std::vector<Tensor>& tensors) const;
  // Those rejected that no receive has claimed.
  void Forget(int peer);

  MessageState& state_;
  client::Group& group_;
  const client::CallOptions options_;
  const Instant deadline_;
  absl::InlinedVector<Out, 1> outs_;
  absl::InlinedVector<In, 1> ins_;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MESSAGES_MESSAGE_CALL_H_
