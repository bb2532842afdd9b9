#include "client/parallel/messages/messages.h"

#include <utility>

#include "base/status_macros.h"
#include "client/parallel/messages/message_call.h"

namespace cohort::parallel {

struct Messages::State : MessageState {
  using MessageState::MessageState;
};

Messages::Messages(client::Group& group, const MessagesOptions& options)
    : state_(std::make_unique<State>(group, options)) {}

Messages::~Messages() = default;

client::Group& Messages::group() const { return state_->group; }

absl::Status Messages::Send(int peer, int channel, const Message& message,
                            const client::CallOptions& options) {
  const absl::Status no_failure;
  MessageCall call(*state_, options);
  call.Add(peer, channel, message, /*awaited=*/false, no_failure);
  return call.Run();
}

absl::StatusOr<Message> Messages::Receive(int peer, int channel, const client::CallOptions& options,
                                          const Accept& accept) {
  MessageCall call(*state_, options);
  call.Add(peer, channel, accept, /*kept_on_error=*/true);
  COHORT_RETURN_IF_ERROR(call.Run());
  return std::move(call.received(0));
}

absl::StatusOr<std::vector<Message>> Messages::Exchange(const std::vector<MessageSend>& sends,
                                                        const std::vector<MessageReceive>& receives,
                                                        const client::CallOptions& options) {
  MessageCall call(*state_, options);
  for (const MessageSend& send : sends) {
    call.Add(send.peer, send.channel, send.message, send.awaited, send.failure);
  }
  for (const MessageReceive& receive : receives) {
    call.Add(receive.peer, receive.channel, receive.accept, receive.kept_on_error);
  }
  COHORT_RETURN_IF_ERROR(call.Run());
  std::vector<Message> received;
  received.reserve(receives.size());
  for (size_t i = 0; i < receives.size(); ++i) received.push_back(std::move(call.received(i)));
  return received;
}

}  // namespace cohort::parallel
