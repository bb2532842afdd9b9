// Messages between ranks, on groups of every form. One file, though long: its cases share one way
// to make, send and compare messages.
#include "client/parallel/messages/messages.h"

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/testing/random_tensor.h"
#include "client/parallel/messages/pending_call.h"
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

// Large enough that the sender asks first, and that a tensor travels by itself.
constexpr int64_t kLarge = 100000;

// On the host; the same seed gives the same elements.
Tensor Filled(DataType type, const Shape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  Tensor tensor = Tensor::Zeros(type, shape);
  auto* const bytes = static_cast<unsigned char*>(tensor.data());
  for (int64_t i = 0; i < tensor.bytes(); ++i) bytes[i] = static_cast<unsigned char>(random());
  return tensor;
}

class MessagesTest : public MessagesFixture {
 protected:
  // `seed` names the message.
  static Message Make(Group& group, uint32_t seed,
                      std::vector<std::pair<DataType, Shape>> tensors) {
    Message message;
    message.note = absl::StrCat("note ", seed);
    for (const auto& [type, shape] : tensors) {
      message.tensors.push_back(Upload(group, Filled(type, shape, seed++)));
    }
    return message;
  }
  static absl::Status Is(Group& group, const Message& message, uint32_t seed,
                         std::vector<std::pair<DataType, Shape>> tensors) {
    if (message.note != absl::StrCat("note ", seed)) {
      return absl::InternalError(absl::StrCat("'", message.note, "' in place of note ", seed));
    }
    if (message.tensors.size() != tensors.size()) return absl::InternalError("other tensors");
    for (size_t i = 0; i < tensors.size(); ++i) {
      const Tensor want = Filled(tensors[i].first, tensors[i].second, seed++);
      const Tensor& got = message.tensors[i];
      if (got.type() != want.type() || got.shape() != want.shape()) {
        return absl::InternalError(absl::StrCat(got.ToString(), " for ", want.ToString()));
      }
      if (ElementsOf(Download(group, got)) != ElementsOf(want)) {
        return absl::InternalError(absl::StrCat("other elements of tensor ", i));
      }
    }
    return absl::OkStatus();
  }
};

TEST_P(MessagesTest, EveryTypeAndSizeWithItsShape) {
  MakeMessages(2);
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    uint32_t seed = 1;
    for (const DataType type : kDataTypes) {
      for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{5, 7}, Shape{3, 4000}}) {
        const std::vector<std::pair<DataType, Shape>> what = {{type, shape}};
        if (group.rank() == 0) {
          COHORT_RETURN_IF_ERROR(of(group).Send(1, 3, Make(group, seed, what)));
        } else {
          COHORT_ASSIGN_OR_RETURN(const Message message, of(group).Receive(0, 3));
          COHORT_RETURN_IF_ERROR(Is(group, message, seed, what));
        }
        ++seed;
      }
    }
    return absl::OkStatus();
  }));
}

TEST_P(MessagesTest, NotesAndListsOfAnyLength) {
  MakeMessages(2);
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    for (const int count : {0, 1, 30, 200}) {
      for (const size_t length : {size_t{0}, size_t{440}, size_t{9000}, size_t{300000}}) {
        Message message;
        message.note = std::string(length, static_cast<char>('a' + count % 26));
        for (int i = 0; i < count; ++i) {
          message.tensors.push_back(Upload(group, Filled(DataType::kI32, {i % 7, 3}, 5)));
        }
        if (group.rank() == 0) {
          COHORT_RETURN_IF_ERROR(of(group).Send(1, 0, message));
          continue;
        }
        COHORT_ASSIGN_OR_RETURN(const Message received, of(group).Receive(0, 0));
        if (received.note != message.note) return absl::InternalError("another note");
        if (received.tensors.size() != message.tensors.size()) {
          return absl::InternalError("other tensors");
        }
        for (size_t i = 0; i < received.tensors.size(); ++i) {
          if (received.tensors[i].shape() != message.tensors[i].shape() ||
              ElementsOf(Download(group, received.tensors[i])) !=
                  ElementsOf(Download(group, message.tensors[i]))) {
            return absl::InternalError(absl::StrCat("another tensor ", i));
          }
        }
      }
    }
    return absl::OkStatus();
  }));
}

// Random messages, sent and received strided, arrive with the sent elements.
TEST_P(MessagesTest, AnyLayoutsOfBothSides) {
  MakeMessages(2);
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    ExpectOk(OnRanks([&](Group& group) -> absl::Status {
      std::mt19937 random(seed);
      const DataType type = kDataTypes[random() % kDataTypes.size()];
      const int64_t wide = random() % 2 == 0 ? 5 : 3000;
      const Shape shape = {static_cast<int64_t>(random() % 4), wide, 3};
      const Tensor elements = Filled(type, shape, seed);
      std::mt19937 layout(seed * 2 + static_cast<uint32_t>(group.rank()));
      const auto allocate = [&](DataType of_type, const Shape& of_shape) {
        return Upload(group, Tensor::Zeros(of_type, of_shape));
      };
      // On a fake GPU, a view can have any layout of the allocated memory.
      const Tensor base = allocate(type, {shape[0], shape[2], shape[1] * 2});
      COHORT_ASSIGN_OR_RETURN(const Tensor half, base.Narrow(2, 0, shape[1]));
      const Tensor strided = half.Permute({0, 2, 1});
      if (group.rank() == 0) {
        COHORT_RETURN_IF_ERROR(CopyTensor(elements, Touchable(strided)));
        return of(group).Send(1, 0, {"", {strided}});
      }
      COHORT_ASSIGN_OR_RETURN(
          const Message message,
          of(group).Receive(
              0, 0, {},
              [&](const std::string&,
                  const std::vector<TensorMeta>& metas) -> absl::StatusOr<std::vector<Tensor>> {
                if (metas.size() != 1 || metas[0].shape != shape || metas[0].type != type) {
                  return absl::InternalError("announced otherwise");
                }
                return std::vector<Tensor>{strided};
              }));
      if (message.tensors[0].data() != strided.data()) return absl::InternalError("elsewhere");
      return ElementsOf(Download(group, strided)) == ElementsOf(elements)
                 ? absl::OkStatus()
                 : absl::InternalError("other elements");
    }));
  }
}

TEST_P(MessagesTest, ChannelsInAnyOrder) {
  MakeMessages(2);
  const std::vector<std::pair<DataType, Shape>> small = {{DataType::kF32, {4}}};
  const std::vector<std::pair<DataType, Shape>> large = {{DataType::kF32, {kLarge}}};
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    Messages& messages = of(group);
    if (group.rank() == 0) {
      // Small messages go one after the other, and large ones all at once or one after the other.
      for (const int channel : {0, 1, 2}) {
        COHORT_RETURN_IF_ERROR(
            messages.Send(1, channel, Make(group, 10 + static_cast<uint32_t>(channel), small)));
      }
      std::vector<MessageSend> sends;
      for (const int channel : {0, 1, 2}) {
        sends.push_back({1, channel, Make(group, 20 + static_cast<uint32_t>(channel), large)});
      }
      COHORT_RETURN_IF_ERROR(messages.Exchange(sends, {}).status());
      for (const int channel : {0, 1, 2}) {
        COHORT_RETURN_IF_ERROR(
            messages.Send(1, channel, Make(group, 30 + static_cast<uint32_t>(channel), large)));
      }
      return absl::OkStatus();
    }
    for (const int channel : {2, 0, 1}) {
      COHORT_ASSIGN_OR_RETURN(const Message message, messages.Receive(0, channel));
      COHORT_RETURN_IF_ERROR(Is(group, message, 10 + static_cast<uint32_t>(channel), small));
    }
    for (const int channel : {1, 2, 0}) {
      COHORT_ASSIGN_OR_RETURN(const Message message, messages.Receive(0, channel));
      COHORT_RETURN_IF_ERROR(Is(group, message, 20 + static_cast<uint32_t>(channel), large));
    }
    for (const int channel : {2, 1, 0}) {
      COHORT_ASSIGN_OR_RETURN(const Message message, messages.Receive(0, channel));
      COHORT_RETURN_IF_ERROR(Is(group, message, 30 + static_cast<uint32_t>(channel), large));
    }
    return absl::OkStatus();
  }));
}

TEST_P(MessagesTest, BothRanksSendFirst) {
  MakeMessages(2);
  for (const int64_t count : {int64_t{4}, kLarge}) {
    const std::vector<std::pair<DataType, Shape>> what = {{DataType::kF32, {count}},
                                                          {DataType::kBool, {}}};
    ExpectOk(OnRanks([&](Group& group) -> absl::Status {
      const int other = 1 - group.rank();
      const auto own = static_cast<uint32_t>(group.rank()) * 100;
      // More small messages than a channel between two ranks holds.
      const uint32_t many = count == kLarge ? 2 : 50;
      for (uint32_t i = 0; i < many; ++i) {
        COHORT_RETURN_IF_ERROR(of(group).Send(other, 0, Make(group, own + i, what)));
      }
      for (uint32_t i = 0; i < many; ++i) {
        COHORT_ASSIGN_OR_RETURN(const Message message, of(group).Receive(other, 0));
        COHORT_RETURN_IF_ERROR(Is(group, message, (100 - own) + i, what));
      }
      return absl::OkStatus();
    }));
  }
}

// The others' messages of a call may be what a rank's own wait for.
TEST_P(MessagesTest, PartsOfACallDoNotWaitForEachOther) {
  MakeMessages(3);
  const std::vector<std::pair<DataType, Shape>> what = {{DataType::kF32, {kLarge}}};
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    Messages& messages = of(group);
    if (group.rank() == 0) {
      COHORT_ASSIGN_OR_RETURN(const auto received,
                              messages.Exchange({{1, 0, Make(group, 7, what)}}, {{2, 0, nullptr}}));
      return Is(group, received[0], 7, what);
    }
    COHORT_ASSIGN_OR_RETURN(const Message message, messages.Receive(group.rank() - 1, 0));
    COHORT_RETURN_IF_ERROR(Is(group, message, 7, what));
    return messages.Send((group.rank() + 1) % 3, 0, message);
  }));
}

// All ranks with all others, on two channels, in random orders.
TEST_P(MessagesTest, ManyAtOnce) {
  for (const int size : {2, 3, 5, 8}) {
    MakeMessages(size);
    for (uint32_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(absl::StrCat(size, " ranks, seed ", seed));
      const auto what = [&](int from, int to, int channel) {
        std::mt19937 random(seed * 1000 + static_cast<uint32_t>((from * size + to) * 2 + channel));
        std::vector<std::pair<DataType, Shape>> tensors;
        for (size_t count = random() % 3; count > 0; --count) {
          tensors.push_back({kDataTypes[random() % kDataTypes.size()],
                             {random() % 3 == 0 ? int64_t{20000} : int64_t{6}}});
        }
        return tensors;
      };
      const auto name = [&](int from, int to, int channel) {
        return static_cast<uint32_t>((from * size + to) * 100 + channel * 10);
      };
      ExpectOk(OnRanks([&](Group& group) -> absl::Status {
        const int own = group.rank();
        std::vector<MessageSend> sends;
        std::vector<MessageReceive> receives;
        for (int other = 0; other < size; ++other) {
          if (other == own) continue;
          for (const int channel : {0, 1}) {
            sends.push_back({other, channel,
                             Make(group, name(own, other, channel), what(own, other, channel))});
            receives.push_back({other, channel, nullptr});
          }
        }
        std::mt19937 order(seed + static_cast<uint32_t>(own));
        std::shuffle(sends.begin(), sends.end(), order);
        std::shuffle(receives.begin(), receives.end(), order);
        COHORT_ASSIGN_OR_RETURN(const std::vector<Message> received,
                                of(group).Exchange(sends, receives));
        for (size_t i = 0; i < received.size(); ++i) {
          const int peer = receives[i].peer;
          const int channel = receives[i].channel;
          COHORT_RETURN_IF_ERROR(
              Is(group, received[i], name(peer, own, channel), what(peer, own, channel)));
        }
        return absl::OkStatus();
      }));
    }
  }
}

TEST_P(MessagesTest, AnUnexpectedSenderGetsTheReason) {
  MakeMessages(2);
  for (const int64_t count : {int64_t{4}, kLarge}) {
    const std::vector<std::pair<DataType, Shape>> what = {{DataType::kF32, {count}}};
    const std::vector<absl::Status> statuses = OnRanks([&](Group& group) -> absl::Status {
      if (group.rank() == 0) return of(group).Send(1, 0, Make(group, 1, what));
      return of(group)
          .Receive(0, 0, {},
                   [](const std::string&,
                      const std::vector<TensorMeta>& metas) -> absl::StatusOr<std::vector<Tensor>> {
                     return absl::InvalidArgumentError(
                         absl::StrCat("f64 [2] is expected, not ", ToString(metas[0])));
                   })
          .status();
    });
    EXPECT_EQ(statuses[1].code(), absl::StatusCode::kInvalidArgument) << statuses[1];
    EXPECT_THAT(std::string(statuses[1].message()), HasSubstr("message of rank 0 on channel 0"));
    // A sender does not wait if it sends little, or if its tensors do not travel by themselves.
    if (count == kLarge) {
      EXPECT_EQ(statuses[0].code(), absl::StatusCode::kInvalidArgument) << statuses[0];
      EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("f64 [2] is expected"));
    }
    // Both ranks go on.
    ExpectOk(OnRanks([&](Group& group) -> absl::Status {
      if (group.rank() == 0) return of(group).Send(1, 0, Make(group, 2, what));
      COHORT_ASSIGN_OR_RETURN(const Message message, of(group).Receive(0, 0));
      return Is(group, message, 2, what);
    }));
  }
}

TEST_P(MessagesTest, PlacesThatDoNotFit) {
  MakeMessages(2);
  const std::vector<std::pair<DataType, Shape>> what = {{DataType::kF32, {kLarge}}};
  const std::vector<std::function<std::vector<Tensor>(Group&)>> places = {
      [](Group&) { return std::vector<Tensor>(); },
      [](Group& group) {
        return std::vector<Tensor>{Upload(group, Tensor::Zeros(DataType::kF32, {kLarge - 1}))};
      },
      [](Group& group) {
        const Tensor one = Upload(group, Tensor::Zeros(DataType::kF32, {1}));
        return std::vector<Tensor>{
            Tensor::Strided(one.data(), one.type(), {kLarge}, {0}, one.owner(), one.device())};
      },
  };
  for (const auto& place : places) {
    for (const absl::Status& status : OnRanks([&](Group& group) -> absl::Status {
           if (group.rank() == 0) return of(group).Send(1, 0, Make(group, 1, what));
           return of(group)
               .Receive(0, 0, {},
                        [&](const std::string&, const std::vector<TensorMeta>&)
                            -> absl::StatusOr<std::vector<Tensor>> { return place(group); })
               .status();
         })) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("to be received"));
    }
  }
}

TEST_P(MessagesTest, ErrorsNameTensorsThatCannotBeSent) {
  MakeMessages(4);
  const std::vector<absl::Status> statuses = OnRanks([&](Group& group) -> absl::Status {
    if (group.rank() > 1) return absl::OkStatus();
    if (group.rank() == 0) {
      const Tensor without_memory(nullptr, DataType::kF32, {4});
      return of(group).Send(1, 0, {"", {without_memory}});
    }
    return of(group).Receive(0, 0).status();
  });
  for (const int r : {0, 1}) {
    const absl::Status& status = statuses[static_cast<size_t>(r)];
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("f32 [4] cannot be sent"));
  }
  // A message without a valid peer or channel fails only on its caller.
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    for (const int peer : {-1, 4, group.rank()}) {
      EXPECT_EQ(of(group).Send(peer, 0, {}).code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(of(group).Receive(peer, 0).status().code(), absl::StatusCode::kInvalidArgument);
    }
    const int next = (group.rank() + 1) % 4;
    EXPECT_EQ(of(group).Send(next, -1, {}).code(), absl::StatusCode::kInvalidArgument);
    // The group works on, and earlier messages are intact.
    COHORT_RETURN_IF_ERROR(of(group).Send(next, 0, {"round", {}}));
    COHORT_ASSIGN_OR_RETURN(const Message message, of(group).Receive((group.rank() + 3) % 4, 0));
    return message.note == "round" ? group.Barrier() : absl::InternalError(message.note);
  }));
}

TEST_P(MessagesTest, Limits) {
  MessagesOptions options;
  options.max_message_bytes = 200000;
  options.max_kept_bytes = 50000;
  options.max_kept_messages = 6;
  MakeMessages(2, options);
  const std::vector<std::pair<DataType, Shape>> large = {{DataType::kF32, {kLarge}}};
  for (const absl::Status& status : OnRanks([&](Group& group) -> absl::Status {
         if (group.rank() == 0) return of(group).Send(1, 0, Make(group, 1, large));
         return of(group).Receive(0, 0).status();
       })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 takes at most 200000"));
  }
  // Messages that no call has asked for are kept, up to a limit.
  const std::vector<std::pair<DataType, Shape>> some = {{DataType::kF32, {20000}}};
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    if (group.rank() == 1) {
      COHORT_ASSIGN_OR_RETURN(const Message message, of(group).Receive(0, 3));
      return message.note == "wanted" ? absl::OkStatus() : absl::InternalError(message.note);
    }
    const absl::Status status = of(group).Send(1, 0, Make(group, 1, some));
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("keeps at most 50000"));
    return of(group).Send(1, 3, {"wanted", {}});
  }));
  // Messages beyond the limit are not lost, but must be received first.
  if (GetParam() == Form::kDevice) return;
  const std::vector<absl::Status> statuses = OnRanks([&](Group& group) -> absl::Status {
    if (group.rank() == 0) {
      for (int i = 0; i < 9; ++i) COHORT_RETURN_IF_ERROR(of(group).Send(1, 1, {"other", {}}));
      return of(group).Send(1, 2, {"wanted", {}});
    }
    const absl::Status too_many = of(group).Receive(0, 2).status();
    EXPECT_EQ(too_many.code(), absl::StatusCode::kResourceExhausted) << too_many;
    for (int i = 0; i < 9; ++i) {
      COHORT_ASSIGN_OR_RETURN(const Message message, of(group).Receive(0, 1));
      if (message.note != "other") return absl::InternalError(message.note);
    }
    COHORT_ASSIGN_OR_RETURN(const Message message, of(group).Receive(0, 2));
    return message.note == "wanted" ? absl::OkStatus() : absl::InternalError(message.note);
  });
  ExpectOk(statuses);
}

TEST_P(MessagesTest, ErrorsNameTheRankThatDoesNotSend) {
  MakeMessages(3);
  const std::vector<absl::Status> statuses = OnRanks([&](Group& group) -> absl::Status {
    if (group.rank() != 0) return absl::OkStatus();
    client::CallOptions options;
    options.timeout = absl::Milliseconds(50);
    return of(group).Exchange({}, {{1, 0, nullptr}, {2, 5, nullptr}}, options).status();
  });
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kDeadlineExceeded) << statuses[0];
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("1-2"));
}

TEST_P(MessagesTest, TheEndOfAPeerIsItsReceiversEnd) {
  MakeMessages(3);
  const std::vector<absl::Status> statuses = OnRanks([&](Group& group) -> absl::Status {
    if (group.rank() == 2) {
      group.Abort(absl::InternalError("rank two has had enough"));
      return absl::OkStatus();
    }
    if (group.rank() == 1) return of(group).Receive(2, 0).status();
    const std::vector<std::pair<DataType, Shape>> what = {{DataType::kF32, {kLarge}}};
    return of(group).Exchange({{2, 0, Make(group, 1, what)}}, {{1, 0, nullptr}}).status();
  });
  for (const int r : {0, 1}) {
    const absl::Status& status = statuses[static_cast<size_t>(r)];
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2"));
  }
}

TEST_P(MessagesTest, Pending) {
  MakeMessages(2);
  const std::vector<std::pair<DataType, Shape>> what = {{DataType::kF32, {kLarge}}};
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    Messages& messages = of(group);
    client::AsyncCalls calls(group);
    if (group.rank() == 0) {
      const Message message = Make(group, 1, what);
      const client::PendingCall sent =
          calls.Start([&](Group&) { return messages.Send(1, 0, message); });
      COHORT_RETURN_IF_ERROR(sent.Wait());
      return sent.Wait();
    }
    const auto pending =
        parallel::Pending<Message>::Start(calls, [&](Group&) { return messages.Receive(0, 0); });
    for (int twice = 0; twice < 2; ++twice) {
      COHORT_ASSIGN_OR_RETURN(const Message message, pending.Wait());
      COHORT_RETURN_IF_ERROR(Is(group, message, 1, what));
    }
    return *pending.Test();
  }));
}

INSTANTIATE_TEST_SUITE_P(Forms, MessagesTest, ::testing::ValuesIn(kForms), FormName);

}  // namespace
}  // namespace cohort::testing
