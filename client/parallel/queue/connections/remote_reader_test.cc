// Readers of other hosts: they come, leave, and are refused.
#include "client/parallel/queue/connections/remote_reader.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/rpc/rank_tls.h"
#include "base/tls/testing/certificates.h"
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

// Nor does a stream that says nothing stay for long.
TEST_F(StreamTest, AStreamWithoutAHelloIsEnded) {
  StreamServerOptions options;
  options.listen = "127.0.0.1:0";
  options.hello_timeout = absl::Milliseconds(50);
  server_ = *StreamServer::Start(options, writer_, handle_);
  RawReader silent(server_->addresses()[0]);
  const grpc::Status end = silent.End();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(end.error_message(), "its hello did not come");
  // One that has said it stays.
  const auto reader = OpenStreamReader(handle_, server_->addresses()[0], "a reader", {}, Soon());
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(RawReader(server_->addresses()[0]).End().error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(writer_->readers().size(), 1U);
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
                                               {}, Clock::Steady().Now() + absl::Seconds(20))
                                  .status();
  EXPECT_EQ(scheme.code(), absl::StatusCode::kUnavailable) << scheme;
  const auto source = OpenStreamReader(handle_, address_, "a reader", {}, Soon());
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_EQ(writer_->readers().size(), 1U);
  EXPECT_THAT(writer_->readers()[0].path, ::testing::StartsWith("stream 127.0.0.1:"));
}

// The path that the writer has for the reader, or its error.
std::string PathOf(const RingWriter& writer,
                   const absl::StatusOr<std::unique_ptr<ByteSource>>& reader) {
  if (!reader.ok()) return reader.status().ToString();
  return writer.readers().empty() ? "no reader" : writer.readers().back().path;
}

TEST(StreamByTls, BothSidesNeedACertificateOfTheSameCa) {
  const std::string folder = ::testing::TempDir();
  const ::cohort::testing::CertificateAuthority ca(folder);
  const ::cohort::testing::CertificateAuthority other_ca(folder, "other-ca");
  // No certificate names the host.
  const RankTls on{TlsState::kOn, ca.Sign("writer", {"writer", "URI:spiffe://domain/writer"})};
  v1::QueueHandle handle = NewHandle(64 << 10);
  handle.set_tls(true);
  handle.set_certificate_name("spiffe://domain/writer");
  const auto writer = std::make_shared<RingWriter>(*RingMemory::Create(64 << 10), true);
  StreamServerOptions options;
  options.listen = "127.0.0.1:0";
  options.tls = on;
  const auto server = StreamServer::Start(options, writer, handle);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->addresses()[0];

  const RankTls reader{TlsState::kOn, ca.Sign("reader", {"reader", ""})};
  const auto admitted = OpenStreamReader(handle, address, "a reader", reader, Soon());
  ASSERT_TRUE(admitted.ok()) << admitted.status();
  EXPECT_EQ((*admitted)->path(), absl::StrCat("tls stream ", address));
  EXPECT_THAT(PathOf(*writer, admitted), ::testing::StartsWith("tls stream 127.0.0.1:"));

  // A server of the same CA that is not the writer must not get the token.
  v1::QueueHandle elsewhere = handle;
  elsewhere.set_certificate_name("spiffe://domain/other");
  const auto refused = OpenStreamReader(elsewhere, address, "a reader", reader, Soon());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable) << refused.status();
  TlsFiles foreign = other_ca.Sign("stranger", {"stranger", ""});
  foreign.ca = ca.path();
  EXPECT_THAT(PathOf(*writer, OpenStreamReader(handle, address, "a stranger",
                                               {TlsState::kOn, foreign}, Soon())),
              AllOf(HasSubstr("UNAVAILABLE"), HasSubstr(address)));
  TlsFiles distrusts = ca.Sign("reader", {"reader", ""});
  distrusts.ca = other_ca.path();
  EXPECT_THAT(PathOf(*writer, OpenStreamReader(handle, address, "a sceptic",
                                               {TlsState::kOn, distrusts}, Soon())),
              AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("certificate verify failed")));
  EXPECT_EQ(writer->readers().size(), 1U);
}

TEST(StreamByTls, NeitherSideFallsBackToPlainText) {
  v1::QueueHandle handle = NewHandle(64 << 10);
  EXPECT_EQ(OpenStreamReader(handle, "127.0.0.1:1", "a reader", {TlsState::kOn, {}}, Soon())
                .status()
                .message(),
            "127.0.0.1:1 serves no TLS, and this process uses TLS. Give both COHORT_TLS_CA, "
            "COHORT_TLS_CERTIFICATE and COHORT_TLS_KEY, or both COHORT_RANK_TLS=off");
  // Its coordinator has TLS.
  EXPECT_EQ(OpenStreamReader(handle, "127.0.0.1:1", "a reader", {TlsState::kCaAlone, {}}, Soon())
                .status()
                .code(),
            absl::StatusCode::kFailedPrecondition);
  handle.set_tls(true);
  const absl::Status status =
      OpenStreamReader(handle, "127.0.0.1:1", "a reader", {TlsState::kNoCertificate, {}}, Soon())
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("127.0.0.1:1 serves TLS, and this process has no TLS certificate "
                        "(COHORT_TLS_CERTIFICATE)"));
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
      OpenStreamReader(handle, absl::StrCat("127.0.0.1:", port), "a reader", {}, Soon());
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
