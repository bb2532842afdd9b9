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
  return Exchange({{peer, channel, message}}, {}, options).status();
}

absl::StatusOr<Message> Messages::Receive(int peer, int channel, const client::CallOptions& options,
                                          const Accept& accept) {
  COHORT_ASSIGN_OR_RETURN(std::vector<Message> received,
                          Exchange({}, {{peer, channel, accept}}, options));
  return std::move(received[0]);
}

absl::StatusOr<std::vector<Message>> Messages::Exchange(const std::vector<MessageSend>& sends,
                                                        const std::vector<MessageReceive>& receives,
                                                        const client::CallOptions& options) {
  return MessageCall(*state_, sends, receives, options).Run();
}

}  // namespace cohort::parallel
