// Watches, uploads and downloads count for their tenant.
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/v1/admin.grpc.pb.h"
#include "cohort/v1/messaging.grpc.pb.h"
#include "cohort/v1/store.grpc.pb.h"
#include "coordinator/core/interface/call.h"
#include "coordinator/service/engine/discard_reply.h"
#include "coordinator/service/testing/rpc_server_test_base.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

class TenantStreamsTest : public RpcServerTestBase {
 protected:
  struct OpenWatch {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::WatchResponse>> reader;
  };

  std::unique_ptr<OpenWatch> Watch(const std::string& tenant) {
    auto watch = std::make_unique<OpenWatch>();
    watch->context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kTimeout));
    v1::WatchRequest request;
    request.mutable_scope()->set_tenant(tenant);
    watch->reader = v1::StoreService::NewStub(channel_)->Watch(&watch->context, request);
    watch->reader->WaitForInitialMetadata();
    return watch;
  }
  grpc::Status Refusal(OpenWatch& watch) {
    v1::WatchResponse response;
    EXPECT_FALSE(watch.reader->Read(&response));
    return watch.reader->Finish();
  }
  v1::TenantUse UseOf(const std::string& tenant) {
    v1::ServerStatsResponse response;
    grpc::ClientContext context;
    const grpc::Status status =
        v1::AdminService::NewStub(channel_)->ServerStats(&context, {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    for (const v1::TenantUse& use : response.tenants()) {
      if (use.tenant() == tenant) return use;
    }
    return v1::TenantUse();
  }
  void SetMaxStreams(int64_t streams) {
    Limits limits = engine_->limits();
    limits.max_tenant_streams = streams;
    engine_->SetLimits(limits);
  }
};

TEST_F(TenantStreamsTest, AStreamOverTheQuotaIsRefusedWithTheNameOfTheLimit) {
  SetMaxStreams(2);
  auto first = Watch("a"), second = Watch("a");
  EXPECT_EQ(UseOf("a").stream_count(), 2);
  EXPECT_GT(UseOf("a").bytes(), 2 * Dispatcher::kRpcCost);
  auto third = Watch("a");
  const grpc::Status refused = Refusal(*third);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(refused.error_message(), "tenant a has 2 streams; max_tenant_streams is 2");

  v1::UploadResponse uploaded;
  grpc::ClientContext context;
  auto upload = v1::MessagingService::NewStub(channel_)->Upload(&context, &uploaded);
  v1::UploadRequest part;
  part.mutable_scope()->set_tenant("a");
  part.mutable_scope()->set_group("g");
  part.mutable_scope()->set_generation(1);
  part.mutable_scope()->set_session(std::string(16, 's'));
  part.set_size_bytes(10);
  upload->Write(part);
  upload->WritesDone();
  EXPECT_THAT(upload->Finish().error_message(), testing::HasSubstr("max_tenant_streams is 2"));

  // Another tenant is not touched.
  auto other = Watch("b");
  EXPECT_EQ(UseOf("b").stream_count(), 1);
  EXPECT_EQ(UseOf("a").stream_count(), 2);

  // A stream that ends makes room.
  first->context.TryCancel();
  EXPECT_EQ(Refusal(*first).error_code(), grpc::StatusCode::CANCELLED);
  const absl::Time end = absl::Now() + kTimeout;
  while (UseOf("a").stream_count() == 2 && absl::Now() < end) std::this_thread::yield();
  auto again = Watch("a");
  EXPECT_EQ(UseOf("a").stream_count(), 2);
  for (OpenWatch* watch : {second.get(), other.get(), again.get()}) {
    watch->context.TryCancel();
    EXPECT_EQ(Refusal(*watch).error_code(), grpc::StatusCode::CANCELLED);
  }
}

TEST_F(TenantStreamsTest, AnAnswerThatAWatchDoesNotReadCounts) {
  const auto unread = [&] { return engine_->account().held(MemoryKind::kOutput); };
  const auto watch = Watch("a");
  const absl::Time end = absl::Now() + kTimeout / 2;
  const std::string name(1000, 'k');
  int puts = 0;
  int64_t held = 0;
  // Until the windows of HTTP/2 are full.
  while (held < 1000 && absl::Now() < end) {
    held = unread();
    if (engine_->Stats().total.waiter_count == 0) continue;
    Call call;
    call.caller.key.tenant = "a";
    PutCall put;
    put.key = absl::StrCat(name, puts++);
    put.value = std::string(60000, 'v');
    call.body = std::move(put);
    engine_->Submit(std::move(call), DiscardReply::Get());
  }
  EXPECT_GE(held, 1000);
  v1::WatchResponse part;
  for (int events = 0; events < puts; events += part.events_size()) {
    ASSERT_TRUE(watch->reader->Read(&part));
  }
  while (unread() > 0 && absl::Now() < end) std::this_thread::yield();
  EXPECT_EQ(unread(), 0);
  watch->context.TryCancel();
  EXPECT_EQ(Refusal(*watch).error_code(), grpc::StatusCode::CANCELLED);
}

}  // namespace
}  // namespace cohort::coordinator
