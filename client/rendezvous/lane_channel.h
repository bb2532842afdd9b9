// The lane connection to a coordinator: a link, renewed when it breaks. Calls go through gRPC as
// long as there is no link.
#ifndef COHORT_CLIENT_RENDEZVOUS_LANE_CHANNEL_H_
#define COHORT_CLIENT_RENDEZVOUS_LANE_CHANNEL_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "client/rendezvous/lane_link.h"

namespace cohort::client {

// Where one call goes.
struct LaneRoute {
  std::shared_ptr<LaneLink> link;  // null: by gRPC
  uint16_t method = 0;
};

// Thread-safe.
class LaneChannel final : public std::enable_shared_from_this<LaneChannel> {
 public:
  // With `enabled` false there never is a link.
  LaneChannel(std::string address, const LaneLinkOptions& options, bool enabled)
      : address_(std::move(address)),
        options_(options),
        state_(enabled ? State::kNone : State::kRefused) {}
  ~LaneChannel();

  // For a method such as "cohort.v1.MessagingService/Send". Begins to connect, in the background,
  // when there is no link; not for the first call, which may be the only one.
  LaneRoute RouteOf(absl::string_view path);
  bool ready() const;

 private:
  enum class State { kNone, kConnecting, kReady, kRefused };

  void Connect();
  void OnReady();
  void OnEnd(LaneLink::End end);

  const std::string address_;
  const LaneLinkOptions options_;
  mutable Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_);
  bool used_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<LaneLink> link_ ABSL_GUARDED_BY(mutex_);
  Instant retry_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Duration pause_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_LANE_CHANNEL_H_
