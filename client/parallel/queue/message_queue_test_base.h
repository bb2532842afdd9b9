// The fixture of tests with both ends of a queue in one process, over each path to the writer.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_MESSAGE_QUEUE_TEST_BASE_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_MESSAGE_QUEUE_TEST_BASE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "client/parallel/queue/message_queue.h"
#include "cohort/v1/queue.pb.h"
#include "gtest/gtest.h"

namespace cohort::parallel {

inline constexpr QueueCall kShort = {absl::Milliseconds(30)};

inline v1::QueueHandle Parsed(const std::string& handle) {
  v1::QueueHandle parsed;
  EXPECT_TRUE(parsed.ParseFromString(handle));
  return parsed;
}

enum class Transport { kMemory, kStream, kStream6 };

inline std::string TransportName(const ::testing::TestParamInfo<Transport>& info) {
  return info.param == Transport::kMemory   ? "Memory"
         : info.param == Transport::kStream ? "Stream"
                                            : "StreamIPv6";
}
inline constexpr Transport kTransports[] = {Transport::kMemory, Transport::kStream,
                                            Transport::kStream6};

class QueueFixture : public ::testing::TestWithParam<Transport> {
 protected:
  bool streams() const { return GetParam() != Transport::kMemory; }

  void MakeWriter(int64_t bytes = 256 << 10) {
    QueueOptions options;
    options.block_bytes = bytes;
    options.blocks = 1;
    options.max_value_bytes = 16 << 20;
    if (streams()) options.listen = GetParam() == Transport::kStream ? "127.0.0.1:0" : "[::1]:0";
    auto writer = MessageQueue::CreateExternal("weights", options);
    ASSERT_TRUE(writer.ok()) << writer.status();
    writer_ = *std::move(writer);
    handle_ = writer_->handle();
    if (!streams()) return;
    v1::QueueHandle handle = Parsed(handle_);
    handle.clear_local();
    handle_ = handle.SerializeAsString();
  }
  std::unique_ptr<MessageQueue> NewReader(const std::string& name = "a reader") {
    QueueOptions options;
    options.join_timeout = absl::Seconds(20);
    auto reader = MessageQueue::Open(handle_, name, options);
    EXPECT_TRUE(reader.ok()) << reader.status();
    return reader.ok() ? *std::move(reader) : nullptr;
  }

  std::unique_ptr<MessageQueue> writer_;
  std::string handle_;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_MESSAGE_QUEUE_TEST_BASE_H_
