#include "client/collective/remote/framed_collective_client.h"

#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/framed_rpc/client/testing/fake_framed_rpc_server.h"
#include "gtest/gtest.h"

namespace cohort::client {
namespace {

using framed_rpc::FakeServer;
using framed_rpc::FakeServerConnection;

constexpr absl::Duration kLong = absl::Seconds(20);

// The other ranks may have seen the call: the client must not call it again, by gRPC.
TEST(FramedCollectiveClientTest, ACallWhoseConnectionBreaksCountsAsSent) {
  FakeServer host;
  FramedCollectiveClient client(absl::StrCat("127.0.0.1:", host.port()), 1 << 20);
  std::thread worker([&] {
    const std::unique_ptr<FakeServerConnection> connection = host.Accept();
    connection->Greet("cohort.v1.WorkerService/RunCollective\n");
    EXPECT_TRUE(connection->Next().has_value());
  });
  FramedCollectiveClient::Answer answer;
  bool sent = false;
  // There is no connection at first.
  for (const absl::Time end = absl::Now() + kLong; !sent && absl::Now() < end;) {
    v1::RunCollectiveResponse response;
    sent = client.Run(v1::RunCollectiveRequest(), kLong, &response, &answer);
    std::this_thread::yield();
  }
  worker.join();
  EXPECT_TRUE(sent);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_FALSE(answer.from_worker);
}

}  // namespace
}  // namespace cohort::client
