// Texts of clients that control a terminal: the worker does not pass them on in an error, in its
// description or in a flight record. The test finds the fields by the requests' descriptors, so
// that it also tries new ones.
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/text/printable.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "tests/failure/testing/members.h"
#include "tests/worker/worker_test_base.h"

namespace cohort {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using ::testing::HasSubstr;
using testing::kTimeout;
using testing::Transport;
using Stub = v1::WorkerService::Stub;

// Clears a terminal, begins a line, and shows the rest of it in reverse (U+202E).
constexpr char kHostile[] = "a\n\x1b[2J\xe2\x80\xae";
constexpr char kEscaped[] = "a\\x0a\\x1b[2J\\xe2\\x80\\xae";

void ExpectPrintable(const Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* const field : fields) {
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (field->type() == FieldDescriptor::TYPE_MESSAGE) {
        ExpectPrintable(field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i)
                                             : reflection.GetMessage(message, field));
      } else if (field->type() == FieldDescriptor::TYPE_STRING) {
        const std::string text = field->is_repeated()
                                     ? reflection.GetRepeatedString(message, field, i)
                                     : reflection.GetString(message, field);
        EXPECT_TRUE(IsPrintable(text)) << field->full_name() << ": " << Printable(text);
      }
    }
  }
}

class HostileTextTest : public testing::WorkerTest {
 protected:
  void SetUp() override {
    WorkerTest::SetUp();
    StartWorker();
    stub_ = StubOf(0);
  }

  static std::unique_ptr<grpc::ClientContext> Context() {
    auto context = std::make_unique<grpc::ClientContext>();
    context->set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kTimeout));
    return context;
  }

  // Calls `method` with each text of `valid` made hostile, one at a time, and then checks the
  // worker's description and flight record.
  template <typename Method, typename Request, typename Response>
  void Try(Method method, const Request& valid, Response* response) {
    tried_.insert(Request::descriptor()->full_name());
    const auto* const descriptor = Request::descriptor();
    for (int i = 0; i < descriptor->field_count(); ++i) {
      const FieldDescriptor* const field = descriptor->field(i);
      if (field->type() != FieldDescriptor::TYPE_STRING || field->is_repeated()) continue;
      SCOPED_TRACE(field->full_name());
      Request request = valid;
      request.GetReflection()->SetString(&request, field, kHostile);
      const grpc::Status status = ((*stub_).*method)(Context().get(), request, response);
      EXPECT_TRUE(IsPrintable(status.error_message())) << Printable(status.error_message());
      ExpectPrintable(*response);
      ExpectPrintable(Describe(0));
      v1::GetFlightRecordResponse record;
      EXPECT_TRUE(stub_->GetFlightRecord(Context().get(), {}, &record).ok());
      ExpectPrintable(record);
    }
  }

  std::unique_ptr<Stub> stub_;
  std::set<std::string> tried_;
};

TEST_F(HostileTextTest, IsNotPassedOn) {
  // A session whose client has a hostile name and a hostile host.
  v1::OpenSessionRequest open;
  open.set_client(kHostile);
  open.set_host(kHostile);
  tried_.insert(open.GetDescriptor()->full_name());
  EXPECT_EQ(open.GetDescriptor()->field_count(), 3) << "a new field must be set here";
  const std::unique_ptr<grpc::ClientContext> stream = Context();
  const auto reader = stub_->OpenSession(stream.get(), open);
  v1::SessionEvent event;
  ASSERT_TRUE(reader->Read(&event));
  const std::string session = event.opened().session();

  v1::JoinGroupRequest join;
  join.set_session(session);
  join.set_group("group");
  join.set_rank(0);
  join.set_world_size(1);
  join.mutable_timeout()->set_seconds(1);
  v1::JoinGroupResponse joined;
  Try(&Stub::JoinGroup, join, &joined);
  join.set_attached(true);
  ASSERT_TRUE(stub_->JoinGroup(Context().get(), join, &joined).ok());
  const v1::JoinGroupResponse attached = joined;
  join.set_attached(false);
  join.set_group("daemon");
  ASSERT_TRUE(stub_->JoinGroup(Context().get(), join, &joined).ok());
  const auto fill = [&](auto& request) {
    request.set_session(session);
    request.set_group(attached.group());
    request.set_generation(attached.generation());
    request.set_name("ids");
  };
  v1::PublishUniqueIdsRequest publish;
  fill(publish);
  publish.add_ids("id");
  v1::PublishUniqueIdsResponse published;
  Try(&Stub::PublishUniqueIds, publish, &published);
  v1::FetchUniqueIdsRequest fetch;
  fill(fetch);
  fetch.mutable_timeout()->set_nanos(1000);
  v1::FetchUniqueIdsResponse fetched;
  Try(&Stub::FetchUniqueIds, fetch, &fetched);
  v1::ReportGroupInitRequest report;
  fill(report);
  report.set_phase(v1::GROUP_INIT_PHASE_FAILED);
  v1::ReportGroupInitResponse reported;
  Try(&Stub::ReportGroupInit, report, &reported);

  v1::RunCollectiveRequest refuse;
  refuse.set_session(session);
  refuse.set_group(joined.group());
  refuse.set_collective(v1::COLLECTIVE_FAIL);
  v1::RunCollectiveResponse ran;
  Try(&Stub::RunCollective, refuse, &ran);
  v1::GetFlightRecordRequest record;
  v1::GetFlightRecordResponse recorded;
  Try(&Stub::GetFlightRecord, record, &recorded);

  // Later calls in the group return the cause.
  v1::AbortGroupRequest abort;
  abort.set_session(session);
  abort.set_group(joined.group());
  v1::AbortGroupResponse aborted;
  Try(&Stub::AbortGroup, abort, &aborted);
  const grpc::Status ended = stub_->RunCollective(Context().get(), refuse, &ran);
  EXPECT_THAT(ended.error_message(), HasSubstr(kEscaped));

  // Each method whose request has a text was tried.
  const auto* const service = open.GetDescriptor()->file()->service(0);
  for (int i = 0; i < service->method_count(); ++i) {
    const auto& request = *service->method(i)->input_type();
    bool has_text = false;
    for (int j = 0; j < request.field_count(); ++j) {
      has_text = has_text || request.field(j)->type() == FieldDescriptor::TYPE_STRING;
    }
    EXPECT_EQ(tried_.count(request.full_name()) > 0, has_text) << request.full_name();
  }
  stream->TryCancel();
  reader->Finish();
}

}  // namespace
}  // namespace cohort
