#include "client/collective/worker_lane.h"

#include "base/lane/frame.h"

namespace cohort::client {
namespace {

constexpr char kRunCollective[] = "cohort.v1.WorkerService/RunCollective";
// The bytes of an answer besides its elements.
constexpr int64_t kMoreBytes = int64_t{64} << 10;

LaneLinkOptions OptionsFor(int64_t max_message_bytes) {
  LaneLinkOptions options;
  options.max_message_bytes = static_cast<size_t>(max_message_bytes + kMoreBytes);
  return options;
}

class Reader final : public LaneLink::Waiter {
 public:
  Reader(v1::RunCollectiveResponse* response, WorkerLane::Answer* answer)
      : response_(response), answer_(answer) {}

  void OnLaneReply(const grpc::Status& status, absl::string_view body) override {
    answer_->status = status;
    answer_->own_words = status.ok() || !body.empty();
    if (!status.ok()) return;
    if (!response_->ParseFromArray(body.data(), static_cast<int>(body.size()))) {
      answer_->status = grpc::Status(grpc::StatusCode::INTERNAL,
                                     "the worker's answer is no message of this method");
    }
  }

 private:
  v1::RunCollectiveResponse* const response_;
  WorkerLane::Answer* const answer_;
};

}  // namespace

WorkerLane::WorkerLane(const std::string& address, int64_t max_message_bytes)
    : channel_(std::make_shared<LaneChannel>(address, OptionsFor(max_message_bytes), true)) {}

bool WorkerLane::Run(const v1::RunCollectiveRequest& request, absl::Duration timeout,
                     v1::RunCollectiveResponse* response, Answer* answer) {
  if (busy_.exchange(true, std::memory_order_acquire)) return false;
  const LaneRoute route = channel_->RouteOf(kRunCollective);
  bool done = false;
  if (route.link != nullptr) {
    std::string frame(lane::kHeaderBytes, '\0');
    request.AppendToString(&frame);
    Reader reader(response, answer);
    done = route.link->Call(route.method, std::move(frame), timeout, reader);
  }
  busy_.store(false, std::memory_order_release);
  return done;
}

}  // namespace cohort::client
