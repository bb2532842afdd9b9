// Messages at their limits: of many lengths, too many, refused, and into memory that the caller
// takes back.
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/status_macros.h"
#include "client/parallel/messages/messages.h"
#include "gmock/gmock.h"
#include "tests/parallel/testing/messages_test_base.h"

namespace cohort::testing {
namespace {

using client::Group;
using parallel::Message;
using parallel::MessageReceive;
using parallel::Messages;
using parallel::MessageSend;
using parallel::MessagesOptions;
using parallel::TensorMeta;
using ::testing::HasSubstr;

// Large enough that the sender asks the receiver first.
constexpr int64_t kLarge = 200000;

Tensor Numbers(int64_t count, int first) {
  const Tensor tensor = Tensor::Uninitialized(DataType::kI32, {count});
  auto* const numbers = static_cast<int32_t*>(tensor.data());
  for (int64_t i = 0; i < count; ++i) numbers[i] = first + static_cast<int32_t>(i);
  return tensor;
}

absl::Status AreNumbers(const Tensor& tensor, int64_t count, int first) {
  if (tensor.type() != DataType::kI32 || tensor.shape() != Shape{count}) {
    return absl::InternalError(absl::StrCat(tensor.ToString(), " in place of i32 [", count, "]"));
  }
  const auto* const numbers = static_cast<const int32_t*>(tensor.data());
  for (int64_t i = 0; i < count; ++i) {
    if (numbers[i] != first + i) {
      return absl::InternalError(absl::StrCat("element ", i, " of ", count, ": ", numbers[i],
                                              ", which should be ", first + i));
    }
  }
  return absl::OkStatus();
}

class MessageLimitsTest : public MessagesFixture {};

// The first piece of a message is as long as the one before it was: any may follow any.
TEST_P(MessageLimitsTest, LengthsThatChange) {
  MakeMessages(2);
  constexpr int kRounds = 150;
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    for (int round = 0; round < kRounds; ++round) {
      std::mt19937 random(20261201 + static_cast<uint32_t>(round));
      const int64_t counts[] = {0, 3, 100, 128, 1900, 2048, 5000, 6100, 6300, 20000};
      const int64_t count = counts[random() % std::size(counts)];
      const std::string note(random() % 4 == 0 ? random() % 9000 : 5, 'n');
      // Sometimes both ranks send at once.
      const bool both = random() % 3 == 0;
      const int sender = static_cast<int>(random() % 2);
      if (both || group.rank() == sender) {
        COHORT_RETURN_IF_ERROR(
            of(group).Send(1 - group.rank(), 0, {note, {Numbers(count, round)}}));
      }
      if (!both && group.rank() == sender) continue;
      COHORT_ASSIGN_OR_RETURN(const Message message, of(group).Receive(1 - group.rank(), 0));
      if (message.note != note) return absl::InternalError(absl::StrCat("round ", round));
      COHORT_RETURN_IF_ERROR(AreNumbers(message.tensors[0], count, round));
    }
    return absl::OkStatus();
  }));
}

// Rank 1 receives the last message of each exchange first, and the large ones before it afterwards.
TEST_P(MessageLimitsTest, TheLastComesFirst) {
  MakeMessages(2);
  constexpr int kMany = 6;
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    for (int round = 0; round < 20; ++round) {
      if (group.rank() == 0) {
        std::vector<MessageSend> sends;
        for (int i = 0; i < kMany; ++i) sends.push_back({1, 1, {"", {Numbers(kLarge, i)}}});
        sends.push_back({1, 0, {"small", {}}});
        COHORT_RETURN_IF_ERROR(of(group).Exchange(sends, {}).status());
      } else {
        COHORT_ASSIGN_OR_RETURN(const Message small, of(group).Receive(0, 0));
        if (small.note != "small") return absl::InternalError(small.note);
        for (int i = 0; i < kMany; ++i) {
          COHORT_ASSIGN_OR_RETURN(const Message large, of(group).Receive(0, 1));
          COHORT_RETURN_IF_ERROR(AreNumbers(large.tensors[0], kLarge, i));
        }
      }
    }
    return absl::OkStatus();
  }));
}

// Frames have bytes, and so have the tensors behind them. Those of a few rounds would be too many.
TEST_P(MessageLimitsTest, ReceivedMessagesGiveBackAllTheirBytes) {
  MessagesOptions options;
  options.max_kept_bytes = 200000;
  MakeMessages(2, options);
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    for (int round = 0; round < 40; ++round) {
      const int64_t counts[] = {100, 1500, 5000, 20000};
      if (group.rank() == 0) {
        for (const int64_t count : counts) {
          COHORT_RETURN_IF_ERROR(of(group).Send(1, 1, {"", {Numbers(count, round)}}));
        }
        COHORT_RETURN_IF_ERROR(of(group).Send(1, 0, {"last", {}}));
        COHORT_RETURN_IF_ERROR(of(group).Receive(1, 2).status());
        continue;
      }
      COHORT_RETURN_IF_ERROR(of(group).Receive(0, 0).status());
      for (const int64_t count : counts) {
        COHORT_ASSIGN_OR_RETURN(const Message message, of(group).Receive(0, 1));
        COHORT_RETURN_IF_ERROR(AreNumbers(message.tensors[0], count, round));
      }
      COHORT_RETURN_IF_ERROR(of(group).Send(0, 2, {"", {}}));
    }
    return absl::OkStatus();
  }));
}

// Each rank refuses more messages than may be in flight.
TEST_P(MessageLimitsTest, RanksThatRefuseEachOther) {
  MessagesOptions options;
  options.max_kept_bytes = 50000;
  MakeMessages(2, options);
  const std::vector<absl::Status> statuses = OnRanks([&](Group& group) -> absl::Status {
    std::vector<MessageSend> sends;
    for (int i = 0; i < 60; ++i) {
      sends.push_back({1 - group.rank(), 0, {"", {Numbers(kLarge, i)}}});
    }
    client::CallOptions call;
    call.timeout = absl::Seconds(20);
    const absl::Status status = of(group).Exchange(sends, {}, call).status();
    // The rank that is done first waits for the other, and meanwhile refuses the rest.
    COHORT_RETURN_IF_ERROR(of(group).Send(1 - group.rank(), 9, {"done", {}}, call));
    COHORT_RETURN_IF_ERROR(of(group).Receive(1 - group.rank(), 9, call).status());
    return status;
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("keeps at most 50000"));
  }
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    if (group.rank() == 0) return of(group).Send(1, 3, {"", {Numbers(kLarge, 1)}});
    COHORT_ASSIGN_OR_RETURN(const Message message, of(group).Receive(0, 3));
    return AreNumbers(message.tensors[0], kLarge, 1);
  }));
}

// The bytes that no call has asked for count together, and only as long as they are kept.
TEST_P(MessageLimitsTest, KeptMessagesCountTogetherAndRefusedOnesNotAtAll) {
  constexpr int64_t kFits = 15000;
  constexpr int64_t kTooLarge = 30000;
  constexpr int kRefused = 1500;
  MessagesOptions options;
  options.max_kept_bytes = 100000;
  MakeMessages(2, options);
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    if (group.rank() == 1) {
      COHORT_RETURN_IF_ERROR(of(group).Receive(0, 3).status());
      COHORT_ASSIGN_OR_RETURN(const Message kept, of(group).Receive(0, 0));
      return AreNumbers(kept.tensors[0], kFits, 1);
    }
    for (int i = 0; i < kRefused; ++i) {
      const absl::Status refused = of(group).Send(1, 0, {"", {Numbers(kTooLarge, i)}});
      if (!absl::IsResourceExhausted(refused)) return absl::InternalError(refused.ToString());
    }
    const absl::Status first = of(group).Send(1, 0, {"", {Numbers(kFits, 1)}});
    EXPECT_TRUE(first.ok()) << first;
    const absl::Status second = of(group).Send(1, 0, {"", {Numbers(kFits, 2)}});
    EXPECT_EQ(second.code(), absl::StatusCode::kResourceExhausted) << second;
    return of(group).Send(1, 3, {"wanted", {}});
  }));
}

// Two ranks that only send to each other get the error that they must receive first; no message is
// lost.
TEST_P(MessageLimitsTest, ARankThatOnlySendsFailsAtTheLimit) {
  constexpr int kMessages = 200;
  MessagesOptions options;
  options.max_kept_messages = 6;
  MakeMessages(2, options);
  std::atomic<int> refused{0};
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    const int other = 1 - group.rank();
    client::CallOptions call;
    call.timeout = absl::Seconds(20);
    int received = 0;
    const auto receive = [&]() -> absl::Status {
      COHORT_ASSIGN_OR_RETURN(const Message message, of(group).Receive(other, 0, call));
      if (message.note != absl::StrCat(received++)) return absl::InternalError(message.note);
      return absl::OkStatus();
    };
    for (int sent = 0; sent < kMessages;) {
      const absl::Status status = of(group).Send(other, 0, {absl::StrCat(sent), {}}, call);
      if (status.ok()) {
        ++sent;
        continue;
      }
      if (!absl::IsResourceExhausted(status)) return status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("must receive them first"));
      ++refused;
      COHORT_RETURN_IF_ERROR(receive());
    }
    while (received < kMessages) COHORT_RETURN_IF_ERROR(receive());
    return absl::OkStatus();
  }));
  EXPECT_GT(refused, 0);
}

// Many small messages around a circle, in one call on each rank: no rank waits for room that never
// comes.
TEST_P(MessageLimitsTest, CirclesOfSmallOnes) {
  for (const int size : {3, 5}) {
    MakeMessages(size);
    for (const int64_t count : {int64_t{3}, int64_t{4000}}) {
      ExpectOk(OnRanks([&](Group& group) -> absl::Status {
        std::vector<MessageSend> sends;
        std::vector<MessageReceive> receives;
        for (int i = 0; i < 12; ++i) {
          sends.push_back({(group.rank() + 1) % size, 0, {"", {Numbers(count, i)}}});
          receives.push_back({(group.rank() + size - 1) % size, 0, nullptr});
        }
        client::CallOptions call;
        call.timeout = absl::Seconds(20);
        COHORT_ASSIGN_OR_RETURN(const std::vector<Message> received,
                                of(group).Exchange(sends, receives, call));
        for (int i = 0; i < 12; ++i) {
          COHORT_RETURN_IF_ERROR(AreNumbers(received[static_cast<size_t>(i)].tensors[0], count, i));
        }
        return absl::OkStatus();
      }));
    }
  }
}

// A part of a message that timed out may have left. The receiver must not take a later message for
// the rest of it.
TEST_P(MessageLimitsTest, ARankSendsNoMoreAfterASendTimedOut) {
  MakeMessages(2);
  absl::Notification timed_out;
  const std::vector<absl::Status> statuses = OnRanks([&](Group& group) -> absl::Status {
    if (group.rank() == 1) {
      timed_out.WaitForNotificationWithTimeout(absl::Seconds(30));
      for (int i = 0; i < 100; ++i) {
        client::CallOptions call;
        call.timeout = absl::Milliseconds(500);
        const absl::StatusOr<Message> message = of(group).Receive(0, 0, call);
        if (!message.ok()) return message.status();
        const Tensor& tensor = message->tensors[0];
        EXPECT_TRUE(AreNumbers(tensor, tensor.count(), static_cast<int>(tensor.count())).ok());
      }
      return absl::OkStatus();
    }
    client::CallOptions call;
    call.timeout = absl::Milliseconds(200);
    absl::Status status;
    for (int i = 0; i < 100 && status.ok(); ++i) {
      const int count = i % 2 == 0 ? 6000 : 100;
      status = of(group).Send(1, 0, {"", {Numbers(count, count)}}, call);
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    const absl::Status again = of(group).Send(1, 0, {"", {Numbers(700, 700)}}, call);
    timed_out.Notify();
    return again;
  });
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kAborted) << statuses[0];
  EXPECT_FALSE(statuses[1].ok());
}

// If a receive of a call fails, the call's other messages are kept for the next call. They are not
// kept in the memory that the caller gave, which belongs to the caller again.
TEST_P(MessageLimitsTest, PlacesOfAFailedCallAreTheCallersAgain) {
  MakeMessages(2);
  for (const int64_t count : {int64_t{5}, kLarge}) {
    ExpectOk(OnRanks([&](Group& group) -> absl::Status {
      if (group.rank() == 0) {
        COHORT_RETURN_IF_ERROR(of(group).Send(1, 0, {"kept", {Numbers(count, 7)}}));
        return of(group).Send(1, 1, {"refused", {}});
      }
      Tensor place = Numbers(count, -1);
      const auto accept = [&](const std::string&, const std::vector<TensorMeta>&)
          -> absl::StatusOr<std::vector<Tensor>> { return std::vector<Tensor>{place}; };
      const auto refuse =
          [](const std::string&,
             const std::vector<TensorMeta>&) -> absl::StatusOr<std::vector<Tensor>> {
        return absl::InvalidArgumentError("the receiver rejects it");
      };
      const absl::Status failed = of(group).Exchange({}, {{0, 0, accept}, {0, 1, refuse}}).status();
      EXPECT_THAT(std::string(failed.message()), HasSubstr("the receiver rejects it"));
      // The caller uses the memory for other data.
      std::fill_n(static_cast<int32_t*>(place.data()), place.count(), -3);
      place = Tensor();
      COHORT_ASSIGN_OR_RETURN(const Message message, of(group).Receive(0, 0));
      if (message.note != "kept") return absl::InternalError(message.note);
      return AreNumbers(message.tensors[0], count, 7);
    }));
  }
}

// The sender refuses extents whose product would overflow, and the receiver gets the error.
TEST_P(MessageLimitsTest, ExtentsThatDoNotFit) {
  MakeMessages(2);
  const int64_t huge = int64_t{1} << 40;
  for (const absl::Status& status : OnRanks([&](Group& group) -> absl::Status {
         if (group.rank() == 1) return of(group).Receive(0, 0).status();
         return of(group).Send(1, 0, {"", {Tensor(nullptr, DataType::kF32, {0, huge, huge})}});
       })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("its extents are too large"));
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, MessageLimitsTest, ::testing::ValuesIn(kForms), FormName);

}  // namespace
}  // namespace cohort::testing
