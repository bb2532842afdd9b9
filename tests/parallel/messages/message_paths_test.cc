// Messages by other paths than shared memory, from ranks that break the protocol, and after a
// generation has ended.
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/testing/random_tensor.h"
#include "client/parallel/messages/message_frame.h"
#include "client/parallel/messages/messages.h"
#include "client/parallel/pipeline/ring_shift.h"
#include "gmock/gmock.h"
#include "tests/failure/testing/members.h"
#include "tests/parallel/testing/parallel_test_base.h"
#include "worker/communicator/nccl/api/testing/fake_nccl_api.h"
#include "worker/group/gpu/cuda_gpu_context.h"
#include "worker/group/local_group.h"

namespace cohort::testing {
namespace {

using client::Group;
using parallel::Message;
using parallel::MessageReceive;
using parallel::Messages;
using parallel::MessageSend;
using ::testing::HasSubstr;

class MessagePathsTest : public ParallelTest {
 protected:
  // Makes groups that the fixture does not make; `adapt` edits the options of each rank.
  Groups Make(int size, const std::function<void(int, worker::LocalGroupOptions&)>& adapt) {
    Groups groups(static_cast<size_t>(size));
    OnThreads(size, [&](int rank) {
      worker::LocalGroupOptions options;
      options.membership.connection.address = coordinator_.address();
      options.membership.group = "ways";
      options.membership.rank = rank;
      options.membership.world_size = size;
      options.timeout = absl::Seconds(60);
      adapt(rank, options);
      absl::StatusOr<std::unique_ptr<Group>> group = worker::LocalGroup::Create(options);
      EXPECT_TRUE(group.ok()) << group.status();
      if (group.ok()) groups[static_cast<size_t>(rank)] = *std::move(group);
    });
    return groups;
  }

  // Sends small and large messages: one after the other, in both directions at once, all at once
  // and around a ring. `on_device` adds tensors on GPUs to those on the host.
  static absl::Status Talk(Group& group, bool on_device) {
    const int size = group.size();
    const int own = group.rank();
    const int next = (own + 1) % size;
    const int previous = (own + size - 1) % size;
    Messages messages(group);
    for (const int64_t count : {int64_t{0}, int64_t{5}, int64_t{50000}}) {
      const auto make = [&](int rank) -> absl::StatusOr<Message> {
        Message message;
        message.note = absl::StrCat("of rank ", rank);
        const Tensor host = Tensor::Zeros(DataType::kI16, {count, 2});
        for (int64_t i = 0; i < host.count(); ++i) {
          static_cast<int16_t*>(host.data())[i] = static_cast<int16_t>(i * 7 + rank);
        }
        message.tensors.push_back(host);
        if (!on_device) return message;
        COHORT_ASSIGN_OR_RETURN(const Tensor device,
                                group.Allocate(host.type(), host.shape(), group.device()));
        COHORT_RETURN_IF_ERROR(CopyTensor(host, Touchable(device)));
        message.tensors.push_back(device);
        return message;
      };
      const auto check = [&](const Message& got, int from) -> absl::Status {
        COHORT_ASSIGN_OR_RETURN(const Message want, make(from));
        if (got.note != want.note || got.tensors.size() != want.tensors.size()) {
          return absl::InternalError(absl::StrCat(got.note, " for ", want.note));
        }
        for (size_t i = 0; i < want.tensors.size(); ++i) {
          if (got.tensors[i].device() != want.tensors[i].device() ||
              got.tensors[i].shape() != want.tensors[i].shape() ||
              ElementsOf(Download(group, got.tensors[i])) !=
                  ElementsOf(Download(group, want.tensors[i]))) {
            return absl::InternalError(absl::StrCat("another tensor ", i));
          }
        }
        return absl::OkStatus();
      };
      COHORT_ASSIGN_OR_RETURN(const Message mine, make(own));
      // Pairs: both ranks send first.
      if (const int other = own ^ 1; other < size) {
        COHORT_RETURN_IF_ERROR(messages.Send(other, 1, mine));
        COHORT_ASSIGN_OR_RETURN(const Message got, messages.Receive(other, 1));
        COHORT_RETURN_IF_ERROR(check(got, other));
      }
      // All ranks with all others.
      std::vector<MessageSend> sends;
      std::vector<MessageReceive> receives;
      for (int other = 0; other < size; ++other) {
        if (other == own) continue;
        sends.push_back({other, 2, mine});
        receives.push_back({other, 2, nullptr});
      }
      COHORT_ASSIGN_OR_RETURN(const std::vector<Message> all, messages.Exchange(sends, receives));
      for (size_t i = 0; i < all.size(); ++i) {
        COHORT_RETURN_IF_ERROR(check(all[i], receives[i].peer));
      }
      // Around the ring: each rank passes on the message that it got.
      if (own == 0) {
        COHORT_ASSIGN_OR_RETURN(const std::vector<Message> back,
                                messages.Exchange({{next, 3, mine}}, {{previous, 3, nullptr}}));
        COHORT_RETURN_IF_ERROR(check(back[0], 0));
      } else {
        COHORT_ASSIGN_OR_RETURN(const Message got, messages.Receive(previous, 3));
        COHORT_RETURN_IF_ERROR(messages.Send(next, 3, got));
      }
      const Tensor& last = mine.tensors.back();
      COHORT_ASSIGN_OR_RETURN(const Tensor shifted, RingShift(messages, last));
      if (shifted.shape() != last.shape()) return absl::InternalError("another shape");
    }
    return absl::OkStatus();
  }
};

TEST_P(MessagePathsTest, BetweenHosts) {
  if (GetParam() != Form::kLocal) GTEST_SKIP() << "the same of all forms";
  for (const int hosts : {4, 2}) {
    SCOPED_TRACE(absl::StrCat(hosts, " hosts"));
    const Groups groups = Make(4, [&](int rank, worker::LocalGroupOptions& options) {
      options.membership.group = absl::StrCat("hosts-", hosts);
      options.bootstrap.host_identity = absl::StrCat("host-", rank % hosts);
    });
    for (const auto& group : groups) ASSERT_NE(group, nullptr);
    ExpectOk(WorkerTest::OnRanks(groups, [](Group& group) { return Talk(group, false); }));
  }
}

// There, messages from host memory go through the coordinator.
TEST_P(MessagePathsTest, InGroupsOfGpusAlone) {
  if (GetParam() != Form::kDevice) GTEST_SKIP() << "the others have no GPUs";
  const auto nccl = std::make_shared<worker::FakeNcclApi>();
  const Groups groups = Make(3, [&](int rank, worker::LocalGroupOptions& options) {
    options.bootstrap.placement = Placement::kDevice;
    options.gpu_context = std::make_shared<worker::CudaGpuContext>(nccl, rank);
  });
  for (const auto& group : groups) ASSERT_NE(group, nullptr);
  ExpectOk(WorkerTest::OnRanks(groups, [](Group& group) { return Talk(group, true); }));
}

TEST_P(MessagePathsTest, HostAndGpuTensors) {
  MakeGroup(3);
  ExpectOk(OnRanks([](Group& group) { return Talk(group, GetParam() == Form::kDevice); }));
}

// A frame that is no message is refused, and the error names its sender.
TEST_P(MessagePathsTest, RanksThatBreakTheProtocol) {
  const std::vector<std::function<void(std::string*)>> spoils = {
      [](std::string* bytes) { *bytes = std::string(bytes->size(), 'x'); },
      // A length that no frame has, or that this frame does not have.
      [](std::string* bytes) { bytes->resize(10); },
      [](std::string* bytes) { bytes->resize(1000); },
      [](std::string* bytes) { (*bytes)[4] = 9; },
      // A body of a terabyte, that comes later or now.
      [](std::string* bytes) { (*bytes)[29] = 1; },
      [](std::string* bytes) { (*bytes)[7] = (*bytes)[29] = 1; },
      [](std::string* bytes) { (*bytes)[45] = 1; },
      [](std::string* bytes) { (*bytes)[6] = static_cast<char>(parallel::FrameKind::kGo); },
      [](std::string* bytes) { (*bytes)[6] = static_cast<char>(parallel::FrameKind::kGrant); },
  };
  for (const auto& spoil : spoils) {
    MakeGroup(2);
    const std::vector<absl::Status> statuses = OnRanks([&](Group& group) -> absl::Status {
      if (group.rank() == 1) return Messages(group).Receive(0, 0).status();
      std::string bytes = parallel::EncodeFrame(parallel::Frame());
      spoil(&bytes);
      return group.Send(Tensor(&bytes[0], DataType::kU8, {static_cast<int64_t>(bytes.size())}), 1);
    });
    EXPECT_TRUE(statuses[0].ok()) << statuses[0];
    EXPECT_TRUE(absl::IsInvalidArgument(statuses[1]) || absl::IsResourceExhausted(statuses[1]))
        << statuses[1];
    EXPECT_THAT(std::string(statuses[1].message()), HasSubstr("rank 0"));
  }
}

TEST_P(MessagePathsTest, InTheNextGeneration) {
  MakeGroup(2);
  std::vector<std::unique_ptr<Messages>> messages;
  for (const int r : {0, 1}) messages.push_back(std::make_unique<Messages>(rank(r)));
  const auto of = [&](Group& group) -> Messages& {
    return *messages[static_cast<size_t>(group.rank())];
  };
  const std::vector<absl::Status> statuses = OnRanks([&](Group& group) -> absl::Status {
    // A message that no call receives.
    if (group.rank() == 0) COHORT_RETURN_IF_ERROR(of(group).Send(1, 0, {"lost", {}}));
    if (group.rank() == 0) {
      COHORT_RETURN_IF_ERROR(of(group).Send(1, 1, {"kept", {}}));
      return of(group).Receive(1, 0).status();
    }
    COHORT_ASSIGN_OR_RETURN(const Message message, of(group).Receive(0, 1));
    group.Abort(absl::InternalError(message.note));
    return absl::OkStatus();
  });
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kAborted) << statuses[0];
  EXPECT_TRUE(statuses[1].ok()) << statuses[1];
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    COHORT_RETURN_IF_ERROR(group.Rejoin());
    if (group.rank() == 0) return of(group).Send(1, 0, {"found", {}});
    COHORT_ASSIGN_OR_RETURN(const Message message, of(group).Receive(0, 0));
    return message.note == "found" ? absl::OkStatus() : absl::InternalError(message.note);
  }));
}

INSTANTIATE_TEST_SUITE_P(Forms, MessagePathsTest, ::testing::ValuesIn(kForms), FormName);

}  // namespace
}  // namespace cohort::testing
