// Frames between this rank and others: how they travel, whatever the group moves.
#ifndef COHORT_CLIENT_PARALLEL_MESSAGES_WIRE_H_
#define COHORT_CLIENT_PARALLEL_MESSAGES_WIRE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "client/collective/group.h"
#include "client/parallel/messages/frame.h"

namespace cohort::parallel {

// In memory of the host by Exchange; in groups whose placement is device, as objects.
class Wire {
 public:
  struct Came {
    int peer = -1;
    Frame frame;  // with its body, unless that comes later
  };

  explicit Wire(client::Group& group);

  // Frames go by Exchange, which mixes them with tensors of the host.
  bool by_exchange() const { return by_exchange_; }

  // One frame each. Does not wait for who takes them, as long as few are under way to a peer.
  absl::Status Put(absl::Span<const int> peers, absl::Span<const Frame> frames,
                   const client::CallOptions& options);
  // kGo, and what follows of the same message: one call.
  absl::Status Go(int peer, const Frame& frame, absl::Span<const Tensor> tensors,
                  const client::CallOptions& options);
  // What follows a kGo.
  absl::Status TakeTensors(int peer, absl::Span<const Tensor> tensors,
                           const client::CallOptions& options);
  // The next frame of whichever of `peers` has sent one first. Errors: INVALID_ARGUMENT: it is
  // none, or longer than `max_bytes`: names the peer.
  absl::StatusOr<Came> Get(absl::Span<const int> peers, int64_t max_bytes,
                           const client::CallOptions& options);
  // Whether a frame of `peer` is there. Always false where the coordinator keeps them, because no
  // sender waits for room there.
  absl::StatusOr<bool> Look(int peer);

 private:
  absl::StatusOr<Came> GetObject(absl::Span<const int> peers, int64_t max_bytes,
                                 const client::CallOptions& options);

  client::Group& group_;
  const bool by_exchange_;
};

// How many bytes a frame may have so that its sender does not wait, with its header.
int64_t MostSentAhead(int group_size);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MESSAGES_WIRE_H_
