// A server with an access policy, which this process and clients of loopback addresses call.
#ifndef COHORT_COORDINATOR_SERVICE_TESTING_ACCESS_TEST_BASE_H_
#define COHORT_COORDINATOR_SERVICE_TESTING_ACCESS_TEST_BASE_H_

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/access/access_policy.h"
#include "coordinator/service/testing/rpc_server_test_base.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {

class AccessTestBase : public RpcServerTestBase {
 protected:
  // This process, by its user id, has `role` in `tenant`. `more_rules` begins with a comma.
  void Start(Role role, const std::string& tenant, const std::string& more_rules = "") {
    char folder[] = "/tmp/access-XXXXXX";  // a socket's path has to be short
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    WritePolicy(role == Role::kNone
                    ? ""
                    : absl::StrCat(R"({"identity": "uid:)", geteuid(), R"(", "tenant": ")", tenant,
                                   R"(", "role": ")", RoleName(role), R"("})", more_rules));
    auto policy = AccessPolicy::Load(path());
    ASSERT_TRUE(policy.ok()) << policy.status();
    server_options_.listener.access = *std::move(policy);
    dispatcher_options_.checks_access = true;
    server_options_.listen = {absl::StrCat("unix:", folder_, "/socket"), "127.0.0.1:0"};
    RpcServerTestBase::SetUp();
  }
  void SetUp() override {}
  void TearDown() override {
    RpcServerTestBase::TearDown();
    server_.reset();
    unlink(path().c_str());
    rmdir(folder_.c_str());
  }
  std::string path() const { return folder_ + "/policy.json"; }
  void WritePolicy(const std::string& rule, const std::string& token = "") {
    const std::string next = path() + ".next";
    std::ofstream(next) << absl::StrCat(R"({"rules": [)", rule, R"(], "tokens": [)", token, "]}");
    ASSERT_EQ(rename(next.c_str(), path().c_str()), 0);
  }

  // A call of any type, with one message and at most one answer.
  static grpc::Status CallByGrpc(const std::shared_ptr<grpc::Channel>& channel,
                                 const std::string& method, const std::string& bytes) {
    grpc::GenericStub stub(channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kTimeout));
    grpc::CompletionQueue queue;
    const auto await = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    const auto call = stub.PrepareCall(&context, absl::StrCat("/", method), &queue);
    grpc::Status status;
    call->StartCall(nullptr);
    await();
    const grpc::Slice slice(bytes);
    call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
    await();
    grpc::ByteBuffer answer;
    call->Read(&answer, nullptr);
    await();
    call->Finish(&status, nullptr);
    await();
    return status;
  }

  std::string folder_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_TESTING_ACCESS_TEST_BASE_H_
