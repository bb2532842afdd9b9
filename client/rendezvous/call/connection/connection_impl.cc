#include "client/rendezvous/call/connection/connection_impl.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/framed_rpc/client/client_event_loop.h"
#include "base/id128.h"
#include "base/rpc/client_channel.h"
#include "base/rpc/client_names.h"
#include "base/rpc/random_bits.h"
#include "base/text/printable.h"
#include "client/rendezvous/call/connection/stubs.h"
#include "client/rendezvous/report/report_codec.h"
#include "grpcpp/channel.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/support/channel_arguments.h"

namespace cohort::client {
namespace {

bool IsName(absl::string_view name) {
  constexpr absl::string_view kMarks = "._:/@+-";
  return !name.empty() && name.size() <= 128 && std::all_of(name.begin(), name.end(), [&](char c) {
    return absl::ascii_isalnum(c) || absl::StrContains(kMarks, absl::string_view(&c, 1));
  });
}

absl::Status CheckAddress(absl::string_view address) {
  if (absl::StartsWith(address, "unix:")) {
    if (address.size() > sizeof("unix:") - 1) return absl::OkStatus();
    return absl::InvalidArgumentError("address \"unix:\" has no path");
  }
  const size_t colon = address.rfind(':');
  const absl::string_view host = colon == absl::string_view::npos ? "" : address.substr(0, colon);
  const bool bracketed = absl::StartsWith(host, "[") && absl::EndsWith(host, "]");
  uint32_t port = 0;
  if (host.empty() || (absl::StrContains(host, ":") && !bracketed) ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port == 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("address \"", Printable(address.substr(0, 256)),
                     "\" is not host:port, [ipv6]:port or unix:/path"));
  }
  if (host.find_first_of(" \t\r\n,") != absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("address \"", Printable(address.substr(0, 256)),
                     "\" has several hosts, expected one; `hostname --ip-address` prints all "
                     "addresses of a host"));
  }
  return absl::OkStatus();
}

// gRPC 1.51 runs the callbacks of all channels on shared threads, and joins them with the last of
// these channels. That is fatal if a callback drops the last channel, and here any callback may
// drop the last share of a connection. So one channel without an address lives for ever and keeps
// those threads.
void KeepCallbackThreads() {
  // Volatile, or the compiler drops a pointer that is never read, and leak checkers miss it.
  static const void* volatile const kept = [] {
    struct Keeper {
      std::shared_ptr<grpc::Channel> channel =
          grpc::CreateCustomChannel("", nullptr, grpc::ChannelArguments());
      std::unique_ptr<v1::GroupService::StubInterface> stub = v1::GroupService::NewStub(channel);
      grpc::ClientContext context;
      v1::GetGroupRequest request;
      v1::GetGroupResponse response;
    };
    auto* const keeper = new Keeper;
    // A channel takes part in the threads from its first call on; this one fails at once.
    keeper->stub->async()->GetGroup(&keeper->context, &keeper->request, &keeper->response,
                                    [](const grpc::Status&) {});
    return keeper;
  }();
  (void)kept;
}

std::shared_ptr<grpc::Channel> MakeChannel(const ConnectionOptions& options, const ClientTls& tls) {
  KeepCallbackThreads();
  ClientChannelOptions channel{options.keepalive_ping, options.max_message_bytes,
                               options.use_http_proxy};
  if (!options.client_names.empty()) {
    channel.metadata_name = kClientNamesMetadata;
    channel.metadata_value = EncodeClientNames(options.client_names);
  }
  return CreateClientChannel(options.address, channel, tls.grpc);
}

std::shared_ptr<framed_rpc::Channel> MakeFramedChannel(const ConnectionOptions& options,
                                                       const ClientTls& tls) {
  framed_rpc::ChannelOptions framed;
  framed.keepalive = options.keepalive_ping;
  framed.tls = tls.framed_rpc;
  framed.token = tls.token;
  framed.client_names = EncodeClientNames(options.client_names);
  framed.max_message_bytes = static_cast<size_t>(options.max_message_bytes);
  return std::make_shared<framed_rpc::Channel>(options.address, framed,
                                               options.framed_rpc && !options.use_http_proxy);
}

ConnectionOptions WithDefaults(ConnectionOptions options) {
  if (options.tenant.empty()) options.tenant = "default";
  return options;
}

}  // namespace

ConnectionImpl::ConnectionImpl(const ConnectionOptions& options, const ClientTls& tls)
    : options_(WithDefaults(options)),
      operation_prefix_(RandomBits().low),
      channel_(MakeChannel(options_, tls)),
      framed_channel_(MakeFramedChannel(options_, tls)),
      stubs_(std::make_unique<Stubs>(channel_)) {
  PrintErrorDetailsAsText();
}

ConnectionImpl::~ConnectionImpl() = default;

bool ConnectionImpl::reached() const {
  return framed_channel_->ready() ||
         channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY;
}

grpc::Status ConnectionImpl::Explain(const grpc::Status& status) const {
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return status;
  const std::string error = framed_channel_->tls_error();
  if (error.empty()) return status;
  return grpc::Status(status.error_code(), absl::StrCat("TLS: ", error));
}

std::string ConnectionImpl::NewOperationId() {
  return Id128{operation_prefix_, operation_count_.fetch_add(1, std::memory_order_relaxed) + 1}
      .ToBytes();
}

absl::StatusOr<std::shared_ptr<Connection>> Connection::Create(const ConnectionOptions& options) {
  if (absl::Status status = CheckAddress(options.address); !status.ok()) return status;
  if (!options.tenant.empty() && !IsName(options.tenant)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tenant \"", Printable(options.tenant.substr(0, 256)), "\" is not a name"));
  }
  if (options.max_message_bytes <= 0 || options.min_backoff <= absl::ZeroDuration() ||
      options.max_backoff < options.min_backoff || options.keepalive_ping <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        "connection options: sizes and times are above zero, and min_backoff is not above "
        "max_backoff");
  }
  const absl::StatusOr<ClientTls> tls = ClientTlsOfEnvironment(options.address);
  if (!tls.ok()) return tls.status();
  if (absl::Status started = framed_rpc::StartClientEventLoops(); !started.ok()) return started;
  auto connection = std::make_shared<ConnectionImpl>(options, *tls);
  if (absl::Status started = connection->timers().status(); !started.ok()) return started;
  return std::shared_ptr<Connection>(std::move(connection));
}

}  // namespace cohort::client
