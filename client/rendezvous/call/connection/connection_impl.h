// The connection behind connection.h: one channel, its stubs, one thread.
#ifndef COHORT_CLIENT_RENDEZVOUS_CALL_CONNECTION_CONNECTION_IMPL_H_
#define COHORT_CLIENT_RENDEZVOUS_CALL_CONNECTION_CONNECTION_IMPL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/framed_rpc/client/framed_rpc_channel.h"
#include "base/rpc/client_tls.h"
#include "client/rendezvous/call/connection.h"
#include "client/rendezvous/call/connection/timer_queue.h"

namespace grpc {
class Channel;
}

namespace cohort::client {

class Stubs;

// Thread-safe. Every call in flight holds a share, so that it always ends.
class ConnectionImpl final : public Connection,
                             public std::enable_shared_from_this<ConnectionImpl> {
 public:
  ConnectionImpl(const ConnectionOptions& options, const ClientTls& tls);
  ~ConnectionImpl() override;

  // All connections of this library are made by Connection::Create, so they are of this class.
  static std::shared_ptr<ConnectionImpl> Of(const std::shared_ptr<Connection>& connection) {
    return std::static_pointer_cast<ConnectionImpl>(connection);
  }

  const ConnectionOptions& options() const override { return options_; }
  TimerQueue& timers() { return timers_; }
  // Framed RPC, for unary calls.
  framed_rpc::Channel& framed_channel() { return *framed_channel_; }
  // Whether there is a connection now, by framed RPC or gRPC.
  bool reached() const;
  // `status`, with the reason if there is no connection because TLS failed: gRPC does not tell it.
  grpc::Status Explain(const grpc::Status& status) const;
  // gRPC (stubs.h).
  Stubs& stubs() { return *stubs_; }

  // 16 bytes that no other call uses.
  std::string NewOperationId();

 private:
  const ConnectionOptions options_;
  const uint64_t operation_prefix_;
  std::atomic<uint64_t> operation_count_{0};
  const std::shared_ptr<grpc::Channel> channel_;
  const std::shared_ptr<framed_rpc::Channel> framed_channel_;
  const std::unique_ptr<Stubs> stubs_;
  TimerQueue timers_;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_CALL_CONNECTION_CONNECTION_IMPL_H_
