// Control messages, beside messages of data.
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/communicator/testing/conformance.h"

namespace cohort::worker {

// In every order in which three of each can be sent and received: of one size, and of one tag.
TEST_P(ConformanceTest, MessagesOfTwoChannelsAreNeverTakenForEachOther) {
  if (!HasSize(2)) GTEST_SKIP() << "the backend has no group of two";
  if (GetParam().uses_control) GTEST_SKIP() << "it reads the control messages that come";
  World world = MakeWorld(2);
  const auto is_control = [](int order, int step) { return (order >> step & 1) != 0; };
  std::vector<int> orders;
  for (int order = 0; order < 64; ++order) {
    if (__builtin_popcount(static_cast<unsigned>(order)) == 3) orders.push_back(order);
  }
  ExpectOk(world.Run([&](Communicator& group) -> absl::Status {
    const int other = 1 - group.rank();
    for (const int sent : orders) {
      for (const int received : orders) {
        int data_messages = 0;
        int control_messages = 0;
        for (int step = 0; step < 6; ++step) {
          const bool control = is_control(group.rank() == 0 ? sent : received, step);
          const int64_t mark = control ? 100 + control_messages : data_messages;
          ++(control ? control_messages : data_messages);
          std::array<int64_t, 2> data = {mark, mark};
          Transfer transfer = Transfer::Send(other, data.data(), 2, DataType::kI64);
          if (group.rank() == 1) {
            transfer.sends = false;
            data = {};
          }
          const absl::Span<const Transfer> one = absl::MakeConstSpan(&transfer, 1);
          COHORT_RETURN_IF_ERROR(group.Exchange(
              one, Soon(), control ? MessageChannel::kControl : MessageChannel::kData));
          if (data[1] != mark) {
            return absl::InternalError(absl::StrCat(data[1], " came for ", mark));
          }
          if (group.rank() == 0) continue;
          COHORT_ASSIGN_OR_RETURN(const bool has_control,
                                  group.HasMessage(other, MessageChannel::kControl));
          COHORT_ASSIGN_OR_RETURN(const bool has_data, group.HasMessage(other));
          if (has_control && control_messages == 3) {
            return absl::InternalError("a control message that no rank sent");
          }
          if (has_data && data_messages == 3) {
            return absl::InternalError("a message that no rank sent");
          }
        }
        // No rank is ahead by another round.
        COHORT_RETURN_IF_ERROR(group.Barrier(Soon()));
      }
    }
    return absl::OkStatus();
  }),
           "two channels");
}

TEST_P(ConformanceTest, AMessageIsAwaitedOnItsChannelAlone) {
  if (!HasSize(2)) GTEST_SKIP() << "the backend has no group of two";
  if (GetParam().uses_control) GTEST_SKIP() << "it reads the control messages that come";
  World world = MakeWorld(2);
  ExpectOk(world.Run([](Communicator& group) -> absl::Status {
    const int other = 1 - group.rank();
    Bytes bytes(16, static_cast<char>(group.rank() + 1));
    const Transfer send = Transfer::Send(other, bytes.data(), 16, DataType::kU8);
    COHORT_RETURN_IF_ERROR(
        group.Exchange(absl::MakeConstSpan(&send, 1), Soon(), MessageChannel::kControl));
    COHORT_ASSIGN_OR_RETURN(
        const MessageInfo info,
        group.AwaitMessage(absl::MakeConstSpan(&other, 1), Soon(), MessageChannel::kControl));
    if (info.peer != other || info.type != DataType::kU8 || info.count != 16) {
      return absl::InternalError(absl::StrCat("a message of ", info.count, " elements"));
    }
    const absl::StatusOr<MessageInfo> data = group.AwaitMessage(
        absl::MakeConstSpan(&other, 1), Clock::Steady().Now() + absl::Milliseconds(1));
    if (!absl::IsDeadlineExceeded(data.status())) return absl::InternalError("it is data, too");
    const Transfer receive = Transfer::Receive(other, bytes.data(), 16, DataType::kU8);
    COHORT_RETURN_IF_ERROR(
        group.Exchange(absl::MakeConstSpan(&receive, 1), Soon(), MessageChannel::kControl));
    return bytes[15] == other + 1 ? absl::OkStatus()
                                  : absl::InternalError("the control message has other bytes");
  }),
           "a control message");
}

TEST_P(ConformanceTest, MoreControlMessagesThanThereIsRoomForAndTooLargeOnes) {
  if (!HasSize(2)) GTEST_SKIP() << "the backend has no group of two";
  if (GetParam().uses_control) GTEST_SKIP() << "it reads the control messages that come";
  constexpr int kMessages = 500;
  World world = MakeWorld(2);
  ExpectOk(world.Run([](Communicator& group) -> absl::Status {
    const int other = 1 - group.rank();
    std::vector<int64_t> sent(kMessages), received(kMessages);
    std::vector<Transfer> transfers;
    for (size_t i = 0; i < kMessages; ++i) {
      sent[i] = static_cast<int64_t>(i) * (group.rank() + 1);
      transfers.push_back(Transfer::Send(other, &sent[i], 1, DataType::kI64));
      transfers.push_back(Transfer::Receive(other, &received[i], 1, DataType::kI64));
    }
    const Transfer large = Transfer::Send(other, sent.data(), 4, DataType::kI64);
    const absl::Status refused =
        group.Exchange(absl::MakeConstSpan(&large, 1), Soon(), MessageChannel::kControl);
    if (!absl::IsInvalidArgument(refused))
      return absl::InternalError("a message that is too large");
    COHORT_RETURN_IF_ERROR(group.Exchange(transfers, Soon(), MessageChannel::kControl));
    for (size_t i = 0; i < kMessages; ++i) {
      if (received[i] != static_cast<int64_t>(i) * (other + 1)) {
        return absl::InternalError(absl::StrCat("message ", i));
      }
    }
    return absl::OkStatus();
  }),
           "many control messages");
}

}  // namespace cohort::worker
