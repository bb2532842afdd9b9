// Every text that a caller may choose, found by the messages' descriptors: refused, made printable,
// or kept as data. A field that is new to the protos fails here until it is in the table.
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/text/printable.h"
#include "coordinator/service/codec/decode.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::Message;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;

// Clears a terminal, begins a line, and shows the rest of it in reverse (U+202E).
constexpr char kHostile[] = "a\n\x1b[2J\xe2\x80\xae";
constexpr char kEscaped[] = "a\\x0a\\x1b[2J\\xe2\\x80\\xae";

enum class Kind {
  kName,  // of few characters: refused
  kText,  // shown to others: made printable
  kData,  // comes back byte by byte: its readers make it printable
};

const std::map<std::string, Kind>& Fields() {
  static const auto* const fields = new std::map<std::string, Kind>{
      {"Scope.tenant", Kind::kName},
      {"Scope.group", Kind::kName},
      {"GroupSpec.LabelsEntry.key", Kind::kText},
      {"GroupSpec.LabelsEntry.value", Kind::kText},
      {"JoinRequest.member", Kind::kName},
      {"JoinRequest.host", Kind::kText},
      {"JoinRequest.addresses", Kind::kText},
      {"JoinRequest.LabelsEntry.key", Kind::kText},
      {"JoinRequest.LabelsEntry.value", Kind::kText},
      {"LeaveRequest.reason", Kind::kText},
      {"KeepAliveRequest.progress_operation", Kind::kText},
      {"TensorOperation.collective", Kind::kName},
      {"TensorOperation.state", Kind::kName},
      {"ListGroupsRequest.page_token", Kind::kName},
      {"ProposeViewRequest.add", Kind::kName},
      {"AckViewRequest.reason", Kind::kText},
      {"ReportErrorRequest.detail", Kind::kText},
      {"AgreeAliveRequest.name", Kind::kName},
      {"VoteRequest.name", Kind::kName},
      {"CloseGroupRequest.reason", Kind::kText},
      {"SendRequest.tag", Kind::kName},
      {"ReceiveRequest.tag", Kind::kName},
      {"Round.name", Kind::kName},
      {"Round.refusal", Kind::kText},
      {"CancelBarrierRequest.name", Kind::kName},
      {"CancelBarrierRequest.reason", Kind::kText},
      {"PutRequest.key", Kind::kData},
      {"PutEntry.key", Kind::kData},
      {"GetRequest.keys", Kind::kData},
      {"GetRequest.queues", Kind::kName},
      {"RangeRequest.prefix", Kind::kData},
      {"RangeRequest.page_token", Kind::kData},
      {"DeleteRequest.key", Kind::kData},
      {"AddRequest.key", Kind::kData},
      {"AppendRequest.key", Kind::kData},
      {"QueuePushRequest.queue", Kind::kName},
      {"QueuePopRequest.queue", Kind::kName},
      {"WatchRequest.prefix", Kind::kData},
      {"PublishRequest.name", Kind::kName},
      {"FetchRequest.name", Kind::kName},
      {"ReportInitRequest.name", Kind::kName},
      {"ReportInitRequest.detail", Kind::kText},
      {"EvictRequest.member", Kind::kName},
      {"EvictRequest.reason", Kind::kText},
  };
  return *fields;
}

// The texts of a call that others may see.
struct TextsOf {
  std::vector<std::string> texts;

  void Add(const std::map<std::string, std::string>& labels) {
    for (const auto& [name, value] : labels) texts.insert(texts.end(), {name, value});
  }
  void operator()(const CreateGroupCall& call) { Add(call.spec.labels); }
  void operator()(const JoinCall& call) {
    texts = call.addresses;
    texts.push_back(call.host);
    Add(call.labels);
    if (call.spec.has_value()) Add(call.spec->labels);
  }
  void operator()(const LeaveCall& call) { texts = {call.reason}; }
  void operator()(const KeepAliveCall& call) { texts = {call.progress_operation}; }
  void operator()(const AckViewCall& call) { texts = {call.reason}; }
  void operator()(const ReportErrorCall& call) { texts = {call.detail}; }
  void operator()(const EnterRoundCall& call) { texts = {call.refusal}; }
  void operator()(const CloseGroupCall& call) { texts = {call.reason}; }
  void operator()(const CancelRoundCall& call) { texts = {call.reason}; }
  void operator()(const ReportInitCall& call) { texts = {call.detail}; }
  void operator()(const EvictCall& call) { texts = {call.reason}; }
  template <typename Other>
  void operator()(const Other&) {}
};

// A request that Decode accepts.
template <typename Request>
Request Valid() {
  Request request;
  request.mutable_scope()->set_group("job");
  return request;
}
template <>
v1::JoinRequest Valid() {
  v1::JoinRequest request;
  request.mutable_scope()->set_group("job");
  request.set_member("m0");
  request.set_incarnation(1);
  request.mutable_spec()->set_min_members(1);
  request.mutable_spec()->set_max_members(2);
  return request;
}
template <>
v1::CreateGroupRequest Valid() {
  v1::CreateGroupRequest request;
  request.mutable_scope()->set_group("job");
  *request.mutable_spec() = Valid<v1::JoinRequest>().spec();
  return request;
}

struct Case {
  const Descriptor* descriptor;
  std::function<std::unique_ptr<Message>()> make;
  std::function<absl::Status(Message&, Call*)> decode;
};

template <typename Request>
Case CaseOf(std::function<void(Request&)> complete = nullptr) {
  const auto make = [complete]() -> std::unique_ptr<Message> {
    auto request = std::make_unique<Request>(Valid<Request>());
    if (complete) complete(*request);
    return request;
  };
  const auto decode = [](Message& message, Call* call) {
    return Decode(static_cast<Request&>(message), DecodeContext(), call);
  };
  return {Request::descriptor(), make, decode};
}

std::vector<Case> Cases() {
  const auto values = [](auto& request) { request.mutable_values()->add_sizes_bytes(0); };
  const auto payload = [](auto& request) { request.mutable_payload()->set_inline_(""); };
  return {
      CaseOf<v1::CreateGroupRequest>(),
      CaseOf<v1::JoinRequest>(),
      CaseOf<v1::LeaveRequest>(),
      CaseOf<v1::KeepAliveRequest>(),
      CaseOf<v1::GetGroupRequest>(),
      CaseOf<v1::ListGroupsRequest>(),
      CaseOf<v1::WatchGroupRequest>(),
      CaseOf<v1::ProposeViewRequest>(),
      CaseOf<v1::AckViewRequest>([](auto& r) { r.set_proposal(1); }),
      CaseOf<v1::ReportErrorRequest>(),
      CaseOf<v1::AgreeAliveRequest>(),
      CaseOf<v1::VoteRequest>([](auto& r) { r.set_op(v1::VOTE_OP_AND); }),
      CaseOf<v1::CloseGroupRequest>(),
      CaseOf<v1::SendRequest>(payload),
      CaseOf<v1::ReceiveRequest>(),
      CaseOf<v1::BroadcastRequest>(),
      CaseOf<v1::AllGatherRequest>(payload),
      CaseOf<v1::GatherRequest>(payload),
      CaseOf<v1::ScatterRequest>(values),
      CaseOf<v1::BarrierRequest>(),
      CaseOf<v1::CancelBarrierRequest>(),
      CaseOf<v1::ExpireRequest>(),
      CaseOf<v1::StatsRequest>(),
      CaseOf<v1::UploadRequest>([](auto& r) { r.set_size_bytes(1); }),
      CaseOf<v1::DownloadRequest>([](auto& r) { r.set_blob(1); }),
      CaseOf<v1::PutRequest>([](auto& r) { r.set_key("k"); }),
      CaseOf<v1::GetRequest>([](auto& r) { r.add_keys("k"); }),
      CaseOf<v1::RangeRequest>(),
      CaseOf<v1::DeleteRequest>([](auto& r) { r.set_key("k"); }),
      CaseOf<v1::AddRequest>([](auto& r) { r.set_key("k"); }),
      CaseOf<v1::AppendRequest>([](auto& r) { r.set_key("k"); }),
      CaseOf<v1::QueuePushRequest>([](auto& r) { r.set_queue("q"); }),
      CaseOf<v1::QueuePopRequest>([](auto& r) { r.set_queue("q"); }),
      CaseOf<v1::WatchRequest>(),
      CaseOf<v1::PublishRequest>([](auto& r) { r.set_name("n"), r.add_ids("id"); }),
      CaseOf<v1::FetchRequest>([](auto& r) { r.set_name("n"); }),
      CaseOf<v1::ReportInitRequest>(
          [](auto& r) { r.set_name("n"), r.set_phase(v1::INIT_PHASE_DONE); }),
      CaseOf<v1::WhoIsMissingRequest>(),
      CaseOf<v1::DumpWaitsRequest>(),
      CaseOf<v1::EvictRequest>([](auto& r) { r.set_member("m0"); }),
  };
}

// "Scope.group": the message and the field, without the package.
std::string NameOf(const FieldDescriptor& field) {
  const std::string package = field.file()->package() + ".";
  return field.full_name().substr(package.size());
}

// Sets the texts below `message`, one at a time, to kHostile: calls `use` with each field.
void ForEachText(Message& message, const std::function<void(const FieldDescriptor&)>& use) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* const field = message.GetDescriptor()->field(i);
    if (field->type() == FieldDescriptor::TYPE_STRING) {
      const std::unique_ptr<Message> before(message.New());
      before->CopyFrom(message);
      if (field->is_repeated()) {
        reflection.AddString(&message, field, kHostile);
      } else {
        reflection.SetString(&message, field, kHostile);
      }
      use(*field);
      message.CopyFrom(*before);
    } else if (field->type() == FieldDescriptor::TYPE_MESSAGE &&
               field->message_type()->file()->package() ==
                   message.GetDescriptor()->file()->package()) {
      const bool had = !field->is_repeated() && reflection.HasField(message, field);
      if (field->is_repeated()) {
        Message* const entry = reflection.AddMessage(&message, field);
        // An entry of a map needs a name.
        if (field->is_map()) {
          entry->GetReflection()->SetString(entry, field->message_type()->map_key(), "name");
        }
        ForEachText(*entry, use);
        reflection.RemoveLast(&message, field);
      } else {
        ForEachText(*reflection.MutableMessage(&message, field), use);
        if (!had) reflection.ClearField(&message, field);
      }
    }
  }
}

TEST(TextFieldsTest, AreRefusedMadePrintableOrData) {
  std::map<std::string, int> seen;
  for (const Case& one : Cases()) {
    const std::unique_ptr<Message> request = one.make();
    ForEachText(*request, [&](const FieldDescriptor& field) {
      const std::string name = NameOf(field);
      SCOPED_TRACE(one.descriptor->name() + ": " + name);
      ++seen[name];
      const auto found = Fields().find(name);
      ASSERT_TRUE(found != Fields().end()) << "name the treatment of this text in Fields()";
      const std::unique_ptr<Message> copy(request->New());
      copy->CopyFrom(*request);
      Call call;
      const absl::Status status = one.decode(*copy, &call);
      EXPECT_TRUE(IsPrintable(status.message())) << status;
      switch (found->second) {
        case Kind::kName:
          EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
          break;
        case Kind::kText: {
          ASSERT_TRUE(status.ok()) << status;
          TextsOf texts;
          std::visit([&texts](const auto& body) { texts(body); }, call.body);
          EXPECT_THAT(texts.texts, Contains(kEscaped));
          EXPECT_THAT(texts.texts, testing::Each(testing::ResultOf(IsPrintable, true)));
          break;
        }
        case Kind::kData:
          EXPECT_TRUE(status.ok()) << status;
          break;
      }
    });
  }
  for (const auto& [name, kind] : Fields()) EXPECT_GT(seen[name], 0) << name << " is in no request";
}

// A method that is new must be among the cases.
TEST(TextFieldsTest, CasesAreTheRequestsOfAllMethods) {
  std::map<std::string, int> cases;
  for (const Case& one : Cases()) ++cases[one.descriptor->full_name()];
  for (const FileDescriptor* const file :
       {v1::JoinRequest::descriptor()->file(), v1::SendRequest::descriptor()->file(),
        v1::PutRequest::descriptor()->file(), v1::PublishRequest::descriptor()->file(),
        v1::EvictRequest::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      for (int j = 0; j < file->service(i)->method_count(); ++j) {
        const Descriptor& request = *file->service(i)->method(j)->input_type();
        if (request.field_count() == 0 || cases.count(request.full_name()) > 0) continue;
        // Without a call of the state machine.
        EXPECT_THAT(request.name(), AnyOf("LimitsRequest", "DrainRequest", "ServerStatsRequest",
                                          "CheckAccessRequest"));
      }
    }
  }
}

TEST(TextFieldsTest, LabelsThatAreShownAlikeAreRefused) {
  auto request = Valid<v1::JoinRequest>();
  (*request.mutable_labels())["a\n"] = "1";
  (*request.mutable_labels())["a\\x0a"] = "2";
  Call call;
  const absl::Status status = Decode(request, DecodeContext(), &call);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("labels: two names are shown alike"));
}

}  // namespace
}  // namespace cohort::coordinator
