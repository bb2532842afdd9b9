// A coordinator with one group, in which bad input must leave nothing behind.
#ifndef COHORT_TESTS_FAILURE_TESTING_BAD_INPUT_TEST_BASE_H_
#define COHORT_TESTS_FAILURE_TESTING_BAD_INPUT_TEST_BASE_H_

#include <zlib.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/members.h"
#include "tests/failure/testing/stubs.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {

inline constexpr int32_t kHuge = std::numeric_limits<int32_t>::max();
inline constexpr int kWorldSize = 3;

class BadInputTestBase : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(coordinator_.Start().ok());
    stubs_ = std::make_unique<testing::Stubs>(coordinator_.address());
    testing::OnThreads(kWorldSize, [&](int rank) {
      v1::JoinResponse response;
      const grpc::Status status = stubs_->groups->Join(
          testing::Context().get(), testing::JoinRequestOf("group", rank, kWorldSize), &response);
      ASSERT_TRUE(status.ok()) << status.error_message();
      scopes_[rank].set_group("group");
      scopes_[rank].set_generation(response.generation());
      scopes_[rank].set_session(response.session());
    });
    before_ = Stats();
  }

  // Expects that bad input left nothing behind, that no member lost its rank, and that the group
  // works.
  void TearDown() override {
    const v1::StatsResponse after = Stats();
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(before_, after))
        << "before: " << before_.ShortDebugString() << "; after: " << after.ShortDebugString();
    v1::ServerStatsResponse server;
    EXPECT_TRUE(stubs_->admin->ServerStats(testing::Context().get(), {}, &server).ok());
    EXPECT_EQ(server.group_count(), 1);
    EXPECT_EQ(server.member_count(), kWorldSize);
    EXPECT_EQ(server.waiter_count(), 0);
    testing::OnThreads(kWorldSize, [&](int rank) {
      v1::BarrierRequest request;
      *request.mutable_scope() = scopes_[rank];
      request.mutable_round()->set_name("afterwards");
      v1::BarrierResponse response;
      const grpc::Status status =
          stubs_->messages->Barrier(testing::Context().get(), request, &response);
      EXPECT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(response.result().outcome(), v1::ROUND_OUTCOME_RELEASED)
          << response.ShortDebugString();
    });
  }

  v1::StatsResponse Stats() {
    v1::StatsRequest request;
    *request.mutable_scope() = scopes_[0];
    v1::StatsResponse response;
    const grpc::Status status =
        stubs_->messages->Stats(testing::Context().get(), request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  template <typename Request>
  Request Of(int rank = 0) {
    Request request;
    *request.mutable_scope() = scopes_[rank];
    return request;
  }

  void ExpectInvalid(const grpc::Status& status, const std::string& field) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
        << field << ": " << status.error_code() << " " << status.error_message();
    EXPECT_THAT(status.error_message(), ::testing::HasSubstr(field));
    EXPECT_LT(status.error_message().size(), 2048);
  }

  grpc::Status Send(const v1::SendRequest& request) {
    v1::SendResponse response;
    return stubs_->messages->Send(testing::Context().get(), request, &response);
  }
  grpc::Status Barrier(const v1::BarrierRequest& request) {
    v1::BarrierResponse response;
    return stubs_->messages->Barrier(testing::Context().get(), request, &response);
  }
  grpc::Status Receive(const v1::ReceiveRequest& request) {
    v1::ReceiveResponse response;
    return stubs_->messages->Receive(testing::Context().get(), request, &response);
  }
  grpc::Status Join(const v1::JoinRequest& request) {
    v1::JoinResponse response;
    return stubs_->groups->Join(testing::Context().get(), request, &response);
  }
  grpc::Status Put(const v1::PutRequest& request) {
    v1::PutResponse response;
    return stubs_->store->Put(testing::Context().get(), request, &response);
  }
  // Sends the parts in order and returns the stream's status; sets `blob` if the upload succeeded.
  grpc::Status Upload(const std::vector<v1::UploadRequest>& parts, int64_t* blob = nullptr) {
    v1::UploadResponse response;
    const auto context = testing::Context();
    const auto stream = stubs_->messages->Upload(context.get(), &response);
    for (const v1::UploadRequest& part : parts) {
      if (!stream->Write(part)) break;
    }
    stream->WritesDone();
    const grpc::Status status = stream->Finish();
    if (blob != nullptr) *blob = response.blob();
    return status;
  }
  // An upload of `data` in parts of 1000 bytes.
  std::vector<v1::UploadRequest> Parts(const std::string& data) {
    std::vector<v1::UploadRequest> parts;
    for (size_t offset = 0; offset < data.size(); offset += 1000) {
      v1::UploadRequest part;
      part.set_offset(offset);
      part.set_data(data.substr(offset, 1000));
      parts.push_back(part);
    }
    *parts[0].mutable_scope() = scopes_[0];
    parts[0].set_size_bytes(data.size());
    parts[0].set_crc32(crc32(0, reinterpret_cast<const Bytef*>(data.data()), data.size()));
    return parts;
  }

  testing::CoordinatorProcess coordinator_{{}};
  std::unique_ptr<testing::Stubs> stubs_;
  v1::Scope scopes_[kWorldSize];
  v1::StatsResponse before_;
};

}  // namespace cohort

#endif  // COHORT_TESTS_FAILURE_TESTING_BAD_INPUT_TEST_BASE_H_
