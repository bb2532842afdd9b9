#include "base/rpc/client_channel.h"

#include <utility>
#include <vector>

#include "grpcpp/create_channel.h"
#include "grpcpp/support/channel_arguments.h"
#include "grpcpp/support/client_interceptor.h"

namespace cohort {
namespace {

class MetadataAdder final : public grpc::experimental::Interceptor {
 public:
  MetadataAdder(std::string name, std::string value)
      : name_(std::move(name)), value_(std::move(value)) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->emplace(name_, value_);
    }
    methods->Proceed();
  }

 private:
  const std::string name_;
  const std::string value_;
};

class MetadataAdderFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  MetadataAdderFactory(std::string name, std::string value)
      : name_(std::move(name)), value_(std::move(value)) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo*) override {
    return new MetadataAdder(name_, value_);
  }

 private:
  const std::string name_;
  const std::string value_;
};

}  // namespace

std::shared_ptr<grpc::Channel> CreateClientChannel(
    const std::string& target, const ClientChannelOptions& options,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, options.use_http_proxy ? 1 : 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  // Despite its name this one also bounds a single attempt to connect.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(options.keepalive_ping)));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Clients make their own retries: with the operation id, and with a shrinking deadline.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetMaxReceiveMessageSize(options.max_message_bytes);
  arguments.SetMaxSendMessageSize(options.max_message_bytes);
  if (options.metadata_name.empty()) {
    return grpc::CreateCustomChannel(target, credentials, arguments);
  }
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> adders;
  adders.push_back(
      std::make_unique<MetadataAdderFactory>(options.metadata_name, options.metadata_value));
  return grpc::experimental::CreateCustomChannelWithInterceptors(target, credentials, arguments,
                                                                 std::move(adders));
}

}  // namespace cohort
