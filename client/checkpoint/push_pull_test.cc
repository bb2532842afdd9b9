// Push and Pull between threads, over a group that can damage its tensors.
#include "client/checkpoint/push_pull.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/threads/mutex.h"
#include "client/checkpoint/checksums.h"
#include "client/checkpoint/sinks.h"
#include "client/collective/testing/lone_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::checkpoint {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(30);

// An all-gather of a test's ranks: in each step, each rank gives a text and gets those of all.
class TestAllGather {
 public:
  explicit TestAllGather(int ranks) : texts_(static_cast<size_t>(ranks)) {}

  absl::StatusOr<std::vector<std::string>> Gather(int rank, std::string text) {
    MutexLock lock(&mutex_);
    texts_[static_cast<size_t>(rank)] = std::move(text);
    const int64_t step = step_;
    if (++arrived_ == texts_.size()) {
      arrived_ = 0;
      ++step_;
      met_ = texts_;
    }
    const auto over = [&] { return step_ > step || !ended_.empty(); };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&over), kTimeout)) {
      return absl::DeadlineExceededError("the other ranks did not arrive");
    }
    if (step_ > step) return met_;
    return absl::AbortedError(ended_);
  }
  void End(const std::string& why) {
    MutexLock lock(&mutex_);
    if (ended_.empty()) ended_ = why;
  }

 private:
  Mutex mutex_;
  std::vector<std::string> texts_;
  std::vector<std::string> met_;
  size_t arrived_ = 0;
  int64_t step_ = 0;
  std::string ended_;
};

class GatheringGroup : public client::LoneGroup {
 public:
  GatheringGroup(TestAllGather& gather, int rank, int size)
      : gather_(gather), rank_(rank), size_(size) {}

  // The broadcast with this number, counted from 1, changes the last byte on this rank.
  int damages = 0;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  absl::Status Run(const CollectiveCall& call, const Tensor&, const Tensor& tensor,
                   const client::CallOptions&) override {
    EXPECT_EQ(call.collective, Collective::kBroadcast);
    const int root = call.root;
    auto* const data = static_cast<char*>(tensor.data());
    const auto size = static_cast<size_t>(tensor.bytes());
    const auto all = gather_.Gather(rank_, rank_ == root ? std::string(data, size) : "");
    if (!all.ok()) return all.status();
    const std::string& sent = (*all)[static_cast<size_t>(root)];
    EXPECT_EQ(sent.size(), size);
    std::copy(sent.begin(), sent.end(), data);
    if (++broadcasts_ == damages) data[size - 1] = static_cast<char>(data[size - 1] ^ 1);
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> BroadcastObject(absl::string_view object, int root,
                                              const client::CallOptions&) override {
    const auto all = gather_.Gather(rank_, std::string(object));
    if (!all.ok()) return all.status();
    return (*all)[static_cast<size_t>(root)];
  }
  absl::StatusOr<std::vector<std::string>> AllGatherObjects(absl::string_view object,
                                                            const client::CallOptions&) override {
    return gather_.Gather(rank_, std::string(object));
  }
  void Abort(const absl::Status& cause) override {
    gather_.End(absl::StrCat("rank ", rank_, " aborted: ", cause.message()));
  }

 private:
  TestAllGather& gather_;
  const int rank_;
  const int size_;
  int broadcasts_ = 0;
};

class Memory : public Sink {
 public:
  std::string file;
  bool ended = false;
  // The result of Take.
  absl::Status error;

  absl::Status Begin(const Layout&, absl::string_view header) override {
    file = std::string(header);
    return absl::OkStatus();
  }
  absl::Status Take(absl::string_view data) override {
    file.append(data.data(), data.size());
    return error;
  }
  absl::Status End() override {
    ended = true;
    return absl::OkStatus();
  }
};

std::string Content() {
  const std::vector<TensorEntry> tensors = {{"a", DataType::kU8, {10'000}},
                                            {"none", DataType::kF32, {0}},
                                            {"b", DataType::kBF16, {7, 501}}};
  std::string content = FormatHeader(tensors, {{"format", "pt"}});
  for (int i = 0; i < 10'000 + 7'014; ++i) content.push_back(static_cast<char>(i * 31));
  return content;
}

absl::StatusOr<File> OpenNew(const std::string& content) {
  const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string path = absl::StrCat(testing::TempDir(), "/", test->name(), ".safetensors");
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  return File::Open(path);
}

// A rank that pushes and two that pull.
struct Outcome {
  absl::StatusOr<TransferReport> root = absl::UnknownError("");
  absl::StatusOr<TransferReport> others[2] = {absl::UnknownError(""), absl::UnknownError("")};
  Memory memory[2];
};

void RunAll(Outcome& outcome, const absl::StatusOr<File>& file, int64_t piece_bytes,
            int damages_rank_1 = 0,
            std::function<void(int64_t, int64_t)> on_progress_of_root = nullptr) {
  TestAllGather gather(3);
  TransferOptions options;
  options.piece_bytes = piece_bytes;
  std::vector<std::thread> others;
  for (int i = 0; i < 2; ++i) {
    others.emplace_back([&, i] {
      GatheringGroup group(gather, i + 1, 3);
      if (i == 0) group.damages = damages_rank_1;
      outcome.others[i] = Pull(group, 0, outcome.memory[i], options);
    });
  }
  GatheringGroup group(gather, 0, 3);
  TransferOptions root_options = options;
  root_options.on_progress = std::move(on_progress_of_root);
  outcome.root = Push(group, file, root_options);
  for (std::thread& other : others) other.join();
}

TEST(TransferTest, AllHaveTheFileByteByByte) {
  const std::string content = Content();
  const auto file = OpenNew(content);
  ASSERT_TRUE(file.ok()) << file.status();
  for (const int64_t piece_bytes : {int64_t{1} << 20, int64_t{10'000}, int64_t{999}}) {
    Outcome outcome;
    RunAll(outcome, file, piece_bytes);
    ASSERT_TRUE(outcome.root.ok()) << outcome.root.status();
    EXPECT_EQ(outcome.root->crc32, Crc32(content));
    EXPECT_EQ(outcome.root->tensors, 3);
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(outcome.others[i].ok()) << outcome.others[i].status();
      EXPECT_EQ(outcome.others[i]->crc32, Crc32(content));
      EXPECT_TRUE(outcome.memory[i].file == content);
      EXPECT_TRUE(outcome.memory[i].ended);
    }
  }
}

// The header travels as it is, with names of types that no tensor of Cohort has.
TEST(TransferTest, PackedTypesTravel) {
  std::string content =
      R"({"__metadata__":{},"w":{"dtype":"F4","shape":[2,8],"data_offsets":[0,8]},)"
      R"("scale":{"dtype":"F8_E8M0","shape":[2],"data_offsets":[8,10]},)"
      R"("one":{"dtype":"F8_E4M3FNUZ","shape":[],"data_offsets":[10,11]},)"
      R"("none":{"dtype":"F6_E2M3","shape":[0,4],"data_offsets":[11,11]},)"
      R"("later":{"dtype":"F3_NEW","shape":[8],"data_offsets":[11,14]}})";
  std::string length(8, '\0');
  length[0] = static_cast<char>(content.size() & 0xff);
  length[1] = static_cast<char>(content.size() >> 8);
  content = length + content;
  for (int i = 0; i < 14; ++i) content.push_back(static_cast<char>(0xf0 + i));
  const auto file = OpenNew(content);
  ASSERT_TRUE(file.ok()) << file.status();
  Outcome outcome;
  RunAll(outcome, file, 5);
  ASSERT_TRUE(outcome.root.ok()) << outcome.root.status();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(outcome.others[i].ok()) << outcome.others[i].status();
    EXPECT_TRUE(outcome.memory[i].file == content);
  }
}

TEST(TransferTest, NoTensorsAreFine) {
  const auto file = OpenNew(FormatHeader({}, {}));
  Outcome outcome;
  RunAll(outcome, file, 1000);
  EXPECT_TRUE(outcome.root.ok()) << outcome.root.status();
  EXPECT_TRUE(outcome.others[1].ok()) << outcome.others[1].status();
}

TEST(TransferTest, AllRanksGetTheErrorOfADamagedFile) {
  Outcome outcome;
  RunAll(outcome, OpenNew(Content() + "more"), 1000);
  EXPECT_EQ(outcome.root.status().code(), absl::StatusCode::kInvalidArgument);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(outcome.others[i].status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(outcome.others[i].status().message()),
                HasSubstr("rank 0, which pushes: checkpoint "));
    EXPECT_EQ(outcome.memory[i].file, "");
  }
}

TEST(TransferTest, DamageOnTheWayIsFoundWhereItIs) {
  const auto file = OpenNew(Content());
  Outcome outcome;
  // The header, then pieces of 10000 bytes: the second is of tensor b.
  RunAll(outcome, file, 10'000, 3);
  EXPECT_EQ(outcome.others[0].status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(outcome.others[0].status().message()), HasSubstr("tensor 'b' was sent"));
  EXPECT_FALSE(outcome.memory[0].ended);
  EXPECT_TRUE(outcome.others[1].ok()) << outcome.others[1].status();
  EXPECT_EQ(outcome.root.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(outcome.root.status().message()), HasSubstr("rank 1: tensor 'b'"));
}

TEST(TransferTest, ADamagedHeaderEndsItForAll) {
  const auto file = OpenNew(Content());
  Outcome outcome;
  RunAll(outcome, file, 10'000, 1);
  EXPECT_EQ(outcome.others[0].status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(outcome.others[1].status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(outcome.root.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(outcome.root.status().message()),
              HasSubstr("rank 1 aborted: the header"));
}

// Another program cuts the file once the first piece has gone.
TEST(TransferTest, AFileThatIsCutMeanwhileIsNamedToAll) {
  const auto file = OpenNew(Content());
  ASSERT_TRUE(file.ok()) << file.status();
  Outcome outcome;
  RunAll(outcome, file, 999, 0,
         [&file](int64_t, int64_t) { ASSERT_EQ(truncate(file->path().c_str(), 2000), 0); });
  const absl::Status root = outcome.root.status();
  EXPECT_EQ(root.code(), absl::StatusCode::kDataLoss) << root;
  EXPECT_THAT(std::string(root.message()), HasSubstr(absl::StrCat("checkpoint ", file->path())));
  for (const auto& other : outcome.others) {
    EXPECT_EQ(other.status().code(), absl::StatusCode::kAborted) << other.status();
    EXPECT_THAT(std::string(other.status().message()), HasSubstr(file->path()));
  }
}

// The same for a file that a rank compares with.
TEST(TransferTest, AComparedFileThatIsCutMeanwhileIsNamed) {
  const std::string content = Content();
  const auto file = OpenNew(content);
  ASSERT_TRUE(file.ok()) << file.status();
  VerifySink sink(*file);
  const absl::string_view data = absl::string_view(content).substr(file->header().size());
  ASSERT_TRUE(sink.Begin(file->layout(), file->header()).ok());
  ASSERT_TRUE(sink.Take(data.substr(0, 5000)).ok());
  ASSERT_EQ(truncate(file->path().c_str(), static_cast<off_t>(file->header().size()) + 7000), 0);
  const absl::Status status = sink.Take(data.substr(5000));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(file->path() + ": was cut while it was read"));
}

TEST(TransferTest, ComparingNamesTheTensorThatDiffers) {
  std::string content = Content();
  const auto file = OpenNew(content);
  ASSERT_TRUE(file.ok()) << file.status();
  VerifySink sink(*file);
  content[file->header().size() + 10'003] ^= 1;
  const absl::Status status = sink.Take(absl::string_view(content).substr(file->header().size()));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the first difference is in tensor 'b' at offset 10003"));
}

TEST(TransferTest, ARankThatCannotKeepItDoesNotStopTheOthers) {
  const std::string content = Content();
  const auto file = OpenNew(content);
  for (const int full : {0, 1}) {
    Outcome outcome;
    outcome.memory[full].error = absl::ResourceExhaustedError("no room");
    RunAll(outcome, file, 999);
    EXPECT_EQ(outcome.others[full].status(), absl::ResourceExhaustedError("no room"));
    const int other = 1 - full;
    EXPECT_TRUE(outcome.others[other].ok()) << outcome.others[other].status();
    EXPECT_TRUE(outcome.memory[other].file == content);
    EXPECT_EQ(outcome.root.status(),
              absl::ResourceExhaustedError(absl::StrCat("rank ", full + 1, ": no room")));
  }
}

}  // namespace
}  // namespace cohort::checkpoint
