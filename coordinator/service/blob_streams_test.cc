// Large values over a socket: uploads, downloads, and answers whose values are to be fetched.
#include <zlib.h>

#include <string>
#include <thread>
#include <vector>

#include "cohort/v1/messaging.grpc.pb.h"
#include "coordinator/service/testing/rpc_server_test_base.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

using BlobStreamsTest = RpcServerTestBase;

// All members get the same values, small ones inline.
TEST_F(BlobStreamsTest, AllGatherInlineAndAsABlob) {
  const std::vector<Joined> members = Form("job", 3);
  for (const size_t size : {size_t{10}, size_t{50000}}) {
    std::vector<v1::AllGatherResponse> responses(3);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        v1::AllGatherRequest request;
        *request.mutable_scope() = members[rank].scope;
        request.mutable_payload()->set_inline_(std::string(size, static_cast<char>('a' + rank)));
        grpc::ClientContext context;
        const grpc::Status status =
            v1::MessagingService::NewStub(channel_)->AllGather(&context, request, &responses[rank]);
        EXPECT_TRUE(status.ok()) << status.error_message();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int rank = 0; rank < 3; ++rank) {
      const v1::Values& values = responses[rank].values();
      if (size == 10) {
        EXPECT_EQ(values.inline_(),
                  std::string(size, 'a') + std::string(size, 'b') + std::string(size, 'c'));
        EXPECT_THAT(values.sizes_bytes(), testing::ElementsAre(size, size, size));
        continue;
      }
      // 150,000 bytes together are over max_inline_bytes: to be fetched.
      ASSERT_TRUE(values.has_blob());
      EXPECT_THAT(values.sizes_bytes(), testing::ElementsAre(50000, 50000, 50000));
      v1::DownloadRequest request;
      *request.mutable_scope() = members[rank].scope;
      request.set_blob(values.blob().blob());
      grpc::ClientContext context;
      auto reader = v1::MessagingService::NewStub(channel_)->Download(&context, request);
      std::string all;
      v1::DownloadResponse part;
      while (reader->Read(&part)) {
        EXPECT_EQ(part.offset(), static_cast<int64_t>(all.size()));
        all += part.data();
      }
      const grpc::Status status = reader->Finish();
      EXPECT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(all, std::string(size, 'a') + std::string(size, 'b') + std::string(size, 'c'));
      EXPECT_EQ(crc32_z(0, reinterpret_cast<const Bytef*>(all.data()), all.size()),
                values.blob().crc32());
    }
  }
}

TEST_F(BlobStreamsTest, UploadIsCheckedAndTheReceiverDownloadsIt) {
  const std::vector<Joined> members = Form("job", 2);
  auto messages = v1::MessagingService::NewStub(channel_);
  std::string value;
  for (int i = 0; i < 300000; ++i) value.push_back(static_cast<char>(i * 7));
  const uint32_t crc =
      static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(value.data()), value.size()));
  const auto upload = [&](uint32_t checksum, bool gap, v1::UploadResponse* response) {
    grpc::ClientContext context;
    auto writer = messages->Upload(&context, response);
    v1::UploadRequest part;
    *part.mutable_scope() = members[0].scope;
    part.set_size_bytes(static_cast<int64_t>(value.size()));
    part.set_crc32(checksum);
    part.set_data(value.substr(0, 100000));
    writer->Write(part);
    v1::UploadRequest rest;
    rest.set_offset(gap ? 100001 : 100000);
    rest.set_data(value.substr(100000));
    writer->Write(rest);
    writer->WritesDone();
    return writer->Finish();
  };
  v1::UploadResponse uploaded;
  EXPECT_EQ(upload(crc + 1, false, &uploaded).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(upload(crc, true, &uploaded).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const grpc::Status status = upload(crc, false, &uploaded);
  ASSERT_TRUE(status.ok()) << status.error_message();
  v1::ReceiveResponse received;
  const auto pass = [&] {
    v1::SendRequest request;
    *request.mutable_scope() = members[0].scope;
    request.set_destination(1);
    request.mutable_payload()->mutable_blob()->set_blob(uploaded.blob());
    v1::SendResponse response;
    grpc::ClientContext send_context;
    const grpc::Status sent = messages->Send(&send_context, request, &response);
    ASSERT_TRUE(sent.ok()) << sent.error_message();
    v1::ReceiveRequest receive;
    *receive.mutable_scope() = members[1].scope;
    grpc::ClientContext receive_context;
    const grpc::Status got = messages->Receive(&receive_context, receive, &received);
    ASSERT_TRUE(got.ok()) << got.error_message();
  };
  pass();
  ASSERT_TRUE(received.payload().has_blob());
  EXPECT_EQ(received.payload().blob().crc32(), crc);
  const auto download = [&](const v1::Scope& scope, int64_t offset, std::string* all) {
    v1::DownloadRequest request;
    *request.mutable_scope() = scope;
    request.set_blob(received.payload().blob().blob());
    request.set_offset(offset);
    grpc::ClientContext context;
    auto reader = messages->Download(&context, request);
    v1::DownloadResponse part;
    while (reader->Read(&part)) *all += part.data();
    return reader->Finish();
  };
  std::string all;
  // Not the sender's to read, and not in one piece from the middle.
  EXPECT_EQ(download(members[0].scope, 0, &all).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(download(members[1].scope, 299990, &all).ok());
  EXPECT_EQ(all, value.substr(299990));
  // A client that has all of it, and missed the end.
  ASSERT_TRUE(upload(crc, false, &uploaded).ok());
  pass();
  EXPECT_EQ(download(members[1].scope, 300001, &all).error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_TRUE(download(members[1].scope, 300000, &all).ok());
  EXPECT_EQ(all.size(), 10u);
}

class LittleMemoryTest : public BlobStreamsTest {
 protected:
  LittleMemoryTest() { engine_options_.limits.max_bytes_held = int64_t{6} << 20; }
};

// It is charged as a call at first, and as a value afterwards.
TEST_F(LittleMemoryTest, AnUploadIsChargedOnce) {
  const std::vector<Joined> members = Form("job", 1);
  const std::string data(1 << 20, 'x');
  constexpr int kParts = 4;
  auto messages = v1::MessagingService::NewStub(channel_);
  grpc::ClientContext context;
  v1::UploadResponse response;
  auto writer = messages->Upload(&context, &response);
  uLong crc = crc32_z(0, nullptr, 0);
  for (int i = 0; i < kParts; ++i) {
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(data.data()), data.size());
  }
  for (int i = 0; i < kParts; ++i) {
    v1::UploadRequest part;
    if (i == 0) {
      *part.mutable_scope() = members[0].scope;
      part.set_size_bytes(kParts * static_cast<int64_t>(data.size()));
      part.set_crc32(static_cast<uint32_t>(crc));
    }
    part.set_offset(i * static_cast<int64_t>(data.size()));
    part.set_data(data);
    writer->Write(part);
  }
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(BlobStreamsTest, AnUploadThatIsNotCompleteIsCharged) {
  const std::vector<Joined> members = Form("job", 1);
  const auto await_held = [&](auto&& fits) {
    const Instant end = Clock::Steady().Now() + kTimeout;
    while (!fits(engine_->account().held(MemoryKind::kUploads))) {
      if (Clock::Steady().Now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  };
  auto messages = v1::MessagingService::NewStub(channel_);
  grpc::ClientContext context;
  v1::UploadResponse response;
  auto writer = messages->Upload(&context, &response);
  v1::UploadRequest part;
  *part.mutable_scope() = members[0].scope;
  part.set_size_bytes(300000);
  part.set_data(std::string(100000, 'x'));
  ASSERT_TRUE(writer->Write(part));
  EXPECT_TRUE(await_held([](int64_t bytes) { return bytes >= 100000; }));
  context.TryCancel();
  EXPECT_FALSE(writer->Finish().ok());
  EXPECT_TRUE(await_held([](int64_t bytes) { return bytes == 0; }));
}

}  // namespace
}  // namespace cohort::coordinator
