// The gRPC channels of clients.
#ifndef COHORT_BASE_RPC_CLIENT_CHANNEL_H_
#define COHORT_BASE_RPC_CLIENT_CHANNEL_H_

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/security/credentials.h"

namespace cohort {

struct ClientChannelOptions {
  // A ping goes out after this time without data. If its answer takes ten seconds, the connection
  // ends: so a host that vanished is noticed.
  absl::Duration keepalive_ping = absl::Seconds(20);
  int max_message_bytes = -1;  // -1: any
  bool use_http_proxy = false;
  // Sent with each call, under the name `metadata_name`; empty: nothing is sent.
  std::string metadata_name;
  std::string metadata_value;
};

// An attempt to connect takes two seconds at most, a pause between two attempts one second. The
// channel repeats no call.
std::shared_ptr<grpc::Channel> CreateClientChannel(
    const std::string& target, const ClientChannelOptions& options = {},
    const std::shared_ptr<grpc::ChannelCredentials>& credentials =
        grpc::InsecureChannelCredentials());

}  // namespace cohort

#endif  // COHORT_BASE_RPC_CLIENT_CHANNEL_H_
