#include "tests/fuzz/access/field_count_check.h"

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/rpc/field_count.h"
#include "cohort/v1/group.pb.h"
#include "cohort/v1/store.pb.h"
#include "cohort/v1/worker.pb.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/message.h"
#include "google/protobuf/unknown_field_set.h"

namespace cohort::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

absl::Status Broken(absl::string_view rule) { return absl::InternalError(rule); }

// Maps, packed numbers, lists of messages, and texts.
const std::vector<const Message*>& Types() {
  static const auto& types = *new std::vector<const Message*>{
      &v1::JoinRequest::default_instance(), &v1::GetRequest::default_instance(),
      &v1::PutRequest::default_instance(), &v1::RunCollectiveRequest::default_instance()};
  return types;
}

int FieldsOf(const UnknownFieldSet& set) {
  int fields = 0;
  for (int i = 0; i < set.field_count(); ++i) {
    const UnknownField& field = set.field(i);
    fields += field.type() == UnknownField::TYPE_GROUP ? 1 + FieldsOf(field.group()) : 1;
  }
  return fields;
}

// The fewest fields that the bytes of `message` can have had. The keys and values of a map have
// default values if the bytes had none.
int FieldsOf(const Message& message) {
  int fields = FieldsOf(message.GetReflection()->GetUnknownFields(message));
  std::vector<const FieldDescriptor*> set;
  message.GetReflection()->ListFields(message, &set);
  for (const FieldDescriptor* const field : set) {
    const bool of_messages =
        field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field->is_map();
    if (!field->is_repeated()) {
      ++fields;
      if (of_messages) fields += FieldsOf(message.GetReflection()->GetMessage(message, field));
      continue;
    }
    const int size = message.GetReflection()->FieldSize(message, field);
    fields += size;
    for (int i = 0; of_messages && i < size; ++i) {
      fields += FieldsOf(message.GetReflection()->GetRepeatedMessage(message, field, i));
    }
  }
  return fields;
}

bool Fits(const Message& type, absl::string_view bytes, int most, int piece) {
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()),
                                                piece);
  return CheckFieldCount(*type.GetDescriptor(), &stream, most).ok();
}

}  // namespace

absl::Status CheckFields(absl::string_view input, FieldCounts* counts) {
  FieldCounts unused;
  if (counts == nullptr) counts = &unused;
  if (input.size() < 2) return absl::OkStatus();
  const Message& type = *Types()[static_cast<uint8_t>(input[0]) % Types().size()];
  const int most = static_cast<uint8_t>(input[1]);
  input.remove_prefix(2);
  const bool fits = Fits(type, input, most, -1);
  if (fits != Fits(type, input, most, 3)) return Broken("another answer for bytes in pieces");
  if (!fits && input.size() <= static_cast<size_t>(most)) return Broken("refused for few bytes");
  if (!fits) ++counts->refused;
  const std::unique_ptr<Message> message(type.New());
  if (!message->ParseFromArray(input.data(), static_cast<int>(input.size()))) {
    return absl::OkStatus();
  }
  ++counts->parsed;
  const int fields = FieldsOf(*message);
  counts->fields += fields;
  if (fits && fields > most) {
    return Broken(absl::StrCat("taken with ", fields, " fields, and ", most, " are the limit"));
  }
  return absl::OkStatus();
}

std::map<std::string, std::string> SampleRequests() {
  v1::JoinRequest join;
  (*join.mutable_labels())["zone"] = "a";
  (*join.mutable_labels())["host"] = "b";
  v1::GetRequest get;
  for (int i = 0; i < 5; ++i) get.add_keys(absl::StrCat(i));
  for (int i = 0; i < 5; ++i) get.mutable_scope()->add_acknowledged_receipts(int64_t{1} << (6 * i));
  v1::PutRequest put;
  put.set_value("value");
  UnknownFieldSet* const group = put.GetReflection()->MutableUnknownFields(&put)->AddGroup(1000);
  for (int i = 0; i < 5; ++i) group->AddFixed32(1, 1);
  group->AddGroup(1)->AddLengthDelimited(1, "inside");
  v1::RunCollectiveRequest collective;
  for (int i = 0; i < 3; ++i) collective.add_transfers();
  const auto input = [](size_t type, int most, const Message& message) {
    return absl::StrCat(std::string(1, static_cast<char>(type)),
                        std::string(1, static_cast<char>(most)), message.SerializeAsString());
  };
  return {
      {"map", input(0, 255, join)},          {"map_over", input(0, 5, join)},
      {"packed", input(1, 255, get)},        {"packed_over", input(1, 11, get)},
      {"group", input(2, 9, put)},           {"group_over", input(2, 8, put)},
      {"messages", input(3, 3, collective)}, {"messages_over", input(3, 2, collective)},
  };
}

}  // namespace cohort::fuzz
