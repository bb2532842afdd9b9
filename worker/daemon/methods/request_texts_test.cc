#include "worker/daemon/methods/request_texts.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "cohort/v1/worker.pb.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using ::testing::HasSubstr;

const google::protobuf::ServiceDescriptor& Service() {
  return *v1::JoinGroupRequest::descriptor()->file()->FindServiceByName("WorkerService");
}

// Sets each text inside `message` to `size` bytes, one at a time, and checks `request`.
void TryTexts(const RequestTexts& texts, const Message& request, Message* message, size_t size,
              int* refused, int* taken) {
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  const Descriptor& type = *message->GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* const field = type.field(i);
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Message* const part = field->is_repeated() ? reflection.AddMessage(message, field)
                                                 : reflection.MutableMessage(message, field);
      TryTexts(texts, request, part, size, refused, taken);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      const std::string text(size, 'x');
      if (field->is_repeated()) {
        reflection.AddString(message, field, text);
      } else {
        reflection.SetString(message, field, text);
      }
      const absl::Status checked = texts.Check(request);
      const std::string name(field->full_name());
      const bool unlimited = name == "cohort.v1.TensorRef.inline" ||
                             name == "cohort.v1.WriteTensorRequest.bytes" ||
                             name == "cohort.v1.RunObjectRequest.object" ||
                             name == "cohort.v1.AbortGroupRequest.cause";
      if (checked.ok()) {
        EXPECT_TRUE(unlimited || size <= kMaxTextBytes) << name;
        ++*taken;
      } else {
        EXPECT_FALSE(unlimited) << name;
        EXPECT_EQ(checked.code(), absl::StatusCode::kInvalidArgument);
        EXPECT_THAT(std::string(checked.message()),
                    HasSubstr(absl::StrCat(field->name(), ": ", size, " bytes; at most ")));
        EXPECT_LT(checked.message().size(), 200u);
        ++*refused;
      }
      reflection.ClearField(message, field);
    }
  }
}

TEST(RequestTextsTest, EachTextOfEachMethodIsBounded) {
  int refused = 0;
  int taken = 0;
  for (int i = 0; i < Service().method_count(); ++i) {
    const Descriptor& type = *Service().method(i)->input_type();
    const std::unique_ptr<Message> request(
        google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type)->New());
    const RequestTexts texts(type);
    SCOPED_TRACE(type.full_name());
    TryTexts(texts, *request, request.get(), kMaxNameBytes, &refused, &taken);
    EXPECT_EQ(refused, 0);
  }
  const int all = taken;
  taken = 0;
  for (int i = 0; i < Service().method_count(); ++i) {
    const Descriptor& type = *Service().method(i)->input_type();
    const std::unique_ptr<Message> request(
        google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type)->New());
    const RequestTexts texts(type);
    TryTexts(texts, *request, request.get(), kMaxTextBytes + 1, &refused, &taken);
  }
  EXPECT_EQ(refused + taken, all);
  EXPECT_GT(refused, 20);
}

TEST(RequestTextsTest, NamesHaveTheLimitOfTheCoordinator) {
  v1::JoinGroupRequest join;
  join.set_tenant(std::string(128, 't'));
  join.set_group(std::string(128, 'g'));
  join.set_member(std::string(128, 'm'));
  EXPECT_TRUE(CheckTexts(join).ok());
  join.set_tenant(std::string(129, 't'));
  EXPECT_EQ(CheckTexts(join).message(), "tenant: 129 bytes; at most 128");
  v1::FetchUniqueIdsRequest fetch;
  fetch.set_name(std::string(129, 'n'));
  EXPECT_EQ(CheckTexts(fetch).message(), "name: 129 bytes; at most 128");
}

TEST(RequestTextsTest, ManyTextsAreRefused) {
  v1::PublishUniqueIdsRequest publish;
  for (int i = 0; i < kMaxTexts; ++i) publish.add_ids("");
  EXPECT_TRUE(CheckTexts(publish).ok());
  publish.add_ids("");
  EXPECT_EQ(CheckTexts(publish).message(), "ids: 4097 texts; at most 4096");
}

TEST(RequestTextsTest, AnExcerptIsShortAndPrintable) {
  EXPECT_EQ(Excerpt("a\nb"), "a\\x0ab");
  const std::string excerpt = Excerpt(std::string(100000, '\n'));
  EXPECT_LT(excerpt.size(), 1000u);
  EXPECT_THAT(excerpt, HasSubstr("(100000 bytes)"));
}

}  // namespace
}  // namespace cohort::worker
