#include "client/collective/remote/framed_collective_client.h"

#include <utility>

#include "base/framed_rpc/frame.h"

namespace cohort::client {
namespace {

constexpr char kRunCollective[] = "cohort.v1.WorkerService/RunCollective";
// The bytes of an answer besides its elements.
constexpr int64_t kMoreBytes = int64_t{64} << 10;

framed_rpc::ChannelOptions OptionsFor(int64_t max_message_bytes, const ClientTls& tls) {
  framed_rpc::ChannelOptions options;
  options.tls = tls.framed_rpc;
  options.token = tls.token;
  options.max_message_bytes = static_cast<size_t>(max_message_bytes + kMoreBytes);
  return options;
}

class Reader final : public framed_rpc::ClientConnection::Waiter {
 public:
  Reader(v1::RunCollectiveResponse* response, FramedCollectiveClient::Answer* answer)
      : response_(response), answer_(answer) {}

  void OnReply(const grpc::Status& status, absl::string_view body) override {
    answer_->status = status;
    answer_->from_worker = status.ok() || !body.empty();
    if (!status.ok()) return;
    if (!response_->ParseFromArray(body.data(), static_cast<int>(body.size()))) {
      answer_->status = grpc::Status(grpc::StatusCode::INTERNAL,
                                     "the worker's answer is no message of this method");
    }
  }

 private:
  v1::RunCollectiveResponse* const response_;
  FramedCollectiveClient::Answer* const answer_;
};

}  // namespace

FramedCollectiveClient::FramedCollectiveClient(const std::string& address,
                                               int64_t max_message_bytes, const ClientTls& tls)
    : channel_(std::make_shared<framed_rpc::Channel>(address, OptionsFor(max_message_bytes, tls),
                                                     true)) {}

bool FramedCollectiveClient::Run(const v1::RunCollectiveRequest& request, absl::Duration timeout,
                                 v1::RunCollectiveResponse* response, Answer* answer) {
  if (busy_.exchange(true, std::memory_order_acquire)) return false;
  const framed_rpc::Route route = channel_->RouteOf(kRunCollective);
  bool done = false;
  if (route.connection != nullptr) {
    std::string frame(framed_rpc::kHeaderBytes, '\0');
    request.AppendToString(&frame);
    Reader reader(response, answer);
    done = route.connection->Call(route.method, std::move(frame), timeout, reader);
  }
  busy_.store(false, std::memory_order_release);
  return done;
}

}  // namespace cohort::client
