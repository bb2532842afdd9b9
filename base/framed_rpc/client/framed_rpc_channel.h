// A framed RPC channel to a server: a connection that is renewed when it breaks. Calls go through
// gRPC as long as there is no connection.
#ifndef COHORT_BASE_FRAMED_RPC_CLIENT_FRAMED_RPC_CHANNEL_H_
#define COHORT_BASE_FRAMED_RPC_CLIENT_FRAMED_RPC_CHANNEL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/framed_rpc/client/client_connection.h"
#include "base/threads/mutex.h"

namespace cohort::framed_rpc {

// Where one call goes.
struct Route {
  std::shared_ptr<ClientConnection> connection;  // null: by gRPC
  uint16_t method = 0;
};

// Thread-safe.
class Channel final : public std::enable_shared_from_this<Channel> {
 public:
  // With `enabled` false there never is a connection. `clock` is that of the pauses between
  // attempts.
  Channel(std::string address, const ChannelOptions& options, bool enabled,
          const Clock& clock = Clock::Steady())
      : address_(std::move(address)),
        options_(ForAddress(options, address_)),
        clock_(clock),
        state_(enabled ? State::kNone : State::kRefused) {}
  ~Channel();

  // For a method such as "cohort.v1.MessagingService/Send". Begins to connect, in the background,
  // when there is no connection; not for the first call, which may be the only one.
  Route RouteOf(absl::string_view path);
  // More calls will follow: the first call waits for a connection, too.
  void ExpectCalls();
  // Returns true if a connection is being made, and begins that if calls are expected: `then` runs
  // once when it is ready or has failed, on the loop's thread. False: RouteOf tells the route now,
  // also if the connection takes longer than it should, as when a name is not found.
  bool WhenSettled(std::function<void()> then);
  // Costs calls no lock.
  bool ready() const { return ready_.load(std::memory_order_acquire); }
  // The error of the last TLS handshake that failed; empty: a later connection was made.
  std::string tls_error() const;

 private:
  enum class State { kNone, kConnecting, kReady, kRefused };

  static ChannelOptions ForAddress(ChannelOptions options, absl::string_view address);
  void Connect();
  // Whether the caller has to call Connect.
  bool BeginLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnReady();
  void OnEnd(ClientConnection::End end, const std::string& why);

  const std::string address_;
  const ChannelOptions options_;
  const Clock& clock_;
  std::atomic<bool> ready_{false};  // whether state_ is kReady
  mutable Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_);
  bool used_ ABSL_GUARDED_BY(mutex_) = false;
  Instant connecting_since_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<ClientConnection> connection_ ABSL_GUARDED_BY(mutex_);
  Instant retry_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Duration pause_ ABSL_GUARDED_BY(mutex_);
  std::string tls_error_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> settled_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::framed_rpc

#endif  // COHORT_BASE_FRAMED_RPC_CLIENT_FRAMED_RPC_CHANNEL_H_
