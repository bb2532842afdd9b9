// Readers of other hosts: they come, leave, and are refused.
#include "client/parallel/queue/connections/remote_reader.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/parallel/queue/connections/handshake.h"
#include "client/parallel/queue/connections/stream_server.h"
#include "cohort/v1/queue.grpc.pb.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Instant Soon() { return Clock::Steady().Now() + absl::Seconds(60); }

v1::QueueHandle NewHandle(int64_t capacity) {
  v1::QueueHandle handle;
  handle.set_version(kQueueVersion);
  handle.set_writer("rank 0");
  handle.set_token(NewToken());
  handle.set_capacity_bytes(capacity);
  handle.set_max_value_bytes(1 << 20);
  return handle;
}

class StreamTest : public ::testing::Test {
 protected:
  StreamTest() : handle_(NewHandle(64 << 10)) {
    writer_ = std::make_shared<RingWriter>(*RingMemory::Create(64 << 10), true);
    StreamServerOptions options;
    options.listen = "127.0.0.1:0";
    server_ = *StreamServer::Start(options, writer_, handle_);
    address_ = server_->addresses()[0];
  }

  v1::QueueHandle handle_;
  std::shared_ptr<RingWriter> writer_;
  std::unique_ptr<StreamServer> server_;
  std::string address_;
};

// A client that sends any messages.
class RawReader {
 public:
  explicit RawReader(const std::string& address)
      : stub_(v1::QueueService::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))),
        stream_(stub_->Read(&context_)) {}
  ~RawReader() {
    context_.TryCancel();
    if (stream_ != nullptr) stream_->Finish();
  }
  bool Say(const v1::ReadQueueRequest& request) { return stream_->Write(request); }
  grpc::Status End() {
    v1::ReadQueueResponse response;
    while (stream_->Read(&response)) {
    }
    const grpc::Status status = stream_->Finish();
    stream_ = nullptr;
    return status;
  }

 private:
  const std::unique_ptr<v1::QueueService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ReadQueueRequest, v1::ReadQueueResponse>> stream_;
};

TEST_F(StreamTest, AnUnidentifiedConnectionIsNotLingeredFor) {
  RawReader unidentified(address_);
  // A later reader has been admitted, so the unidentified call has arrived.
  v1::ReadQueueRequest nothing;
  nothing.mutable_hello()->set_version(kQueueVersion);
  RawReader refused(address_);
  ASSERT_TRUE(refused.Say(nothing));
  EXPECT_EQ(refused.End().error_code(), grpc::StatusCode::PERMISSION_DENIED);
  writer_->End("it is over");
  server_->Finish(absl::InfiniteDuration());
}

TEST_F(StreamTest, AReaderThatLiesIsRemovedAndGetsTheReason) {
  RawReader liar(address_);
  v1::ReadQueueRequest request;
  *request.mutable_hello() = HelloTo(handle_, "a liar");
  ASSERT_TRUE(liar.Say(request));
  request.mutable_progress()->set_position(1 << 20);
  ASSERT_TRUE(liar.Say(request));
  const grpc::Status end = liar.End();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(end.error_message(), HasSubstr("it claims to have read up to 1048576"));
  EXPECT_TRUE(writer_->AwaitChange([&] { return writer_->readers().empty(); }, {Soon()}));
  ASSERT_EQ(writer_->departures().size(), 1U);
  EXPECT_EQ(writer_->departures()[0].name, "a liar");
}

// A host's name may be one of gRPC's schemes.
TEST_F(StreamTest, AnAddressIsAHostAndAPort) {
  const absl::Status scheme = OpenStreamReader(handle_, absl::StrCat("ipv4:", address_), "a reader",
                                               Clock::Steady().Now() + absl::Seconds(20))
                                  .status();
  EXPECT_EQ(scheme.code(), absl::StatusCode::kUnavailable) << scheme;
  const auto source = OpenStreamReader(handle_, address_, "a reader", Soon());
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_EQ(writer_->readers().size(), 1U);
  EXPECT_THAT(writer_->readers()[0].path, ::testing::StartsWith("stream 127.0.0.1:"));
}

// A writer that admits its readers and then lets them go.
class LettingGo final : public v1::QueueService::Service {
 public:
  explicit LettingGo(const v1::QueueHandle& handle) : handle_(handle) {}
  grpc::Status Read(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::ReadQueueResponse, v1::ReadQueueRequest>* stream) override {
    v1::ReadQueueRequest request;
    stream->Read(&request);
    v1::ReadQueueResponse response;
    *response.mutable_welcome() = WelcomeOf(handle_, 0);
    stream->Write(response);
    return grpc::Status(grpc::StatusCode::ABORTED, "it is too slow");
  }

 private:
  const v1::QueueHandle handle_;
};

TEST(RemoteReader, AReaderThatWasRemovedGetsTheReason) {
  const v1::QueueHandle handle = NewHandle(64 << 10);
  LettingGo service(handle);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto source =
      OpenStreamReader(handle, absl::StrCat("127.0.0.1:", port), "a reader", Soon());
  ASSERT_TRUE(source.ok()) << source.status();
  for (int i = 0; i < 2; ++i) {
    const absl::Status out = (*source)->Await(16, {Soon()});
    EXPECT_EQ(out.code(), absl::StatusCode::kAborted);
    EXPECT_THAT(std::string(out.message()),
                AllOf(HasSubstr("rank 0, who writes it, let this reader go: it is too slow")));
  }
}

}  // namespace
}  // namespace cohort::parallel
