// Payloads and blobs that no Cohort client sends.
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/bad_input_test_base.h"

namespace cohort {
namespace {

using BadPayloadTest = BadInputTestBase;
using ::testing::AnyOf;
using testing::Context;
using ::testing::HasSubstr;

TEST_F(BadPayloadTest, PayloadsThatAreTooLargeAreRefusedByTheNameOfTheLimit) {
  v1::SendRequest send = Of<v1::SendRequest>();
  send.set_destination(1);
  send.mutable_payload()->set_inline_(std::string((3 << 20) + 1, 'x'));
  grpc::Status status = Send(send);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("max_inline_bytes"));

  v1::AllGatherRequest gather = Of<v1::AllGatherRequest>();
  gather.mutable_payload()->set_inline_(std::string((3 << 20) + 1, 'x'));
  v1::AllGatherResponse gather_response;
  status = stubs_->messages->AllGather(Context().get(), gather, &gather_response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("max_inline_bytes"));

  v1::PutRequest put = Of<v1::PutRequest>();
  put.set_key("key");
  put.set_value(std::string((1 << 20) + 1, 'x'));
  status = Put(put);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("max_value_bytes"));

  // Larger than the transport accepts: gRPC refuses it before the coordinator sees it.
  send.mutable_payload()->set_inline_(std::string(8 << 20, 'x'));
  EXPECT_EQ(Send(send).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);

  v1::UploadRequest upload = Of<v1::UploadRequest>();
  upload.set_size_bytes(int64_t{1} << 50);
  upload.set_data("x");
  status = Upload({upload});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_THAT(status.error_message(),
              HasSubstr(absl::StrCat("group ", upload.scope().group(),
                                     ": size_bytes is 1125899906842624, over max_object_bytes (")));
}

TEST_F(BadPayloadTest, EmptyPayloadsAreLegalAndArrive) {
  for (const bool set : {true, false}) {
    v1::SendRequest send = Of<v1::SendRequest>(1);
    send.set_destination(0);
    if (set) send.mutable_payload()->set_inline_("");
    const grpc::Status sent = Send(send);
    if (!set && !sent.ok()) {
      ExpectInvalid(sent, "payload");
      continue;
    }
    EXPECT_TRUE(sent.ok()) << sent.error_message();
    v1::ReceiveResponse response;
    v1::ReceiveRequest receive = Of<v1::ReceiveRequest>();
    receive.set_source(1);
    EXPECT_TRUE(stubs_->messages->Receive(Context().get(), receive, &response).ok());
    EXPECT_EQ(response.outcome(), v1::RECEIVE_OUTCOME_RECEIVED);
    EXPECT_EQ(response.payload().inline_(), "");
  }
}

TEST_F(BadPayloadTest, BlobsThatDoNotExist) {
  v1::SendRequest send = Of<v1::SendRequest>();
  send.set_destination(1);
  send.mutable_payload()->mutable_blob()->set_blob(12345);
  send.mutable_payload()->mutable_blob()->set_size_bytes(10);
  const grpc::Status status = Send(send);
  EXPECT_THAT(status.error_code(),
              AnyOf(grpc::StatusCode::INVALID_ARGUMENT, grpc::StatusCode::NOT_FOUND));
  EXPECT_THAT(status.error_message(), HasSubstr("blob"));
  for (const int64_t offset : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    v1::DownloadRequest download = Of<v1::DownloadRequest>();
    download.set_blob(12345);
    download.set_offset(offset);
    const auto context = Context();
    const auto stream = stubs_->messages->Download(context.get(), download);
    v1::DownloadResponse part;
    EXPECT_FALSE(stream->Read(&part));
    EXPECT_FALSE(stream->Finish().ok());
  }
}

TEST_F(BadPayloadTest, UploadsThatDifferFromTheirDeclaration) {
  const std::string data(3500, 'u');
  ExpectInvalid(Upload({}), "at least one part");
  std::vector<v1::UploadRequest> parts = Parts(data);
  parts.pop_back();
  ExpectInvalid(Upload(parts), "3500 were announced");
  parts = Parts(data);
  parts[2].set_offset(1500);
  ExpectInvalid(Upload(parts), "offset");
  parts = Parts(data);
  parts.erase(parts.begin() + 2);
  ExpectInvalid(Upload(parts), "offset");
  parts = Parts(data);
  parts[1].set_offset(-1);
  ExpectInvalid(Upload(parts), "offset");
  parts = Parts(data);
  parts[0].set_crc32(parts[0].crc32() + 1);
  ExpectInvalid(Upload(parts), "crc32");
  parts = Parts(data);
  parts[0].set_size_bytes(3000);
  ExpectInvalid(Upload(parts), "announced 3000");
  parts = Parts(data);
  parts[0].set_size_bytes(-1);
  ExpectInvalid(Upload(parts), "size_bytes");
  parts = Parts(data);
  parts[0].mutable_scope()->set_session("short");
  ExpectInvalid(Upload(parts), "session");

  // The caller cancels in the middle; the coordinator drops the parts that it got.
  v1::UploadResponse response;
  const auto context = Context();
  const auto stream = stubs_->messages->Upload(context.get(), &response);
  stream->Write(Parts(data)[0]);
  context->TryCancel();
  EXPECT_FALSE(stream->Finish().ok());

  // A proper upload works by the same path, and its blob is freed once the reader has it.
  int64_t blob = 0;
  const grpc::Status uploaded = Upload(Parts(data), &blob);
  ASSERT_TRUE(uploaded.ok()) << uploaded.error_message();
  v1::SendRequest send = Of<v1::SendRequest>();
  send.set_destination(1);
  send.mutable_payload()->mutable_blob()->set_blob(blob);
  send.mutable_payload()->mutable_blob()->set_size_bytes(data.size());
  send.mutable_payload()->mutable_blob()->set_crc32(Parts(data)[0].crc32());
  ASSERT_TRUE(Send(send).ok()) << Send(send).error_message();
  v1::ReceiveRequest receive = Of<v1::ReceiveRequest>(1);
  receive.set_source(0);
  v1::ReceiveResponse received;
  ASSERT_TRUE(stubs_->messages->Receive(Context().get(), receive, &received).ok());
  EXPECT_EQ(received.payload().inline_(), data);
}

}  // namespace
}  // namespace cohort
