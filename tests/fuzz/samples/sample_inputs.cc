#include "tests/fuzz/samples/sample_inputs.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cohort/v1/admin.pb.h"
#include "cohort/v1/group.pb.h"
#include "cohort/v1/messaging.pb.h"
#include "cohort/v1/store.pb.h"
#include "cohort/v1/unique_id.pb.h"
#include "google/protobuf/descriptor.h"
#include "tests/fuzz/samples/sample_scripts.h"
#include "tests/fuzz/samples/script_builder.h"
#include "tests/fuzz/scripts/wire_types.h"

namespace cohort::coordinator::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr char kNoDeadline = static_cast<char>(0xFF);

// One kind of value in every field of a message.
struct Values {
  int64_t integer64 = 0;
  int32_t integer32 = 0;
  int enumerator = 0;
  bool flag = false;
  std::string text;
  std::string bytes;
  int repeats = 1;
};

void FillEvery(const Values& values, int depth, Message* message) {
  const Reflection& to = *message->GetReflection();
  const auto* descriptor = message->GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    const int count = field->is_repeated() ? values.repeats : 1;
    for (int n = 0; n < count; ++n) {
      const bool add = field->is_repeated();
      switch (field->cpp_type()) {
        case FieldDescriptor::CPPTYPE_INT32:
          add ? to.AddInt32(message, field, values.integer32)
              : to.SetInt32(message, field, values.integer32);
          break;
        case FieldDescriptor::CPPTYPE_INT64:
          add ? to.AddInt64(message, field, values.integer64)
              : to.SetInt64(message, field, values.integer64);
          break;
        case FieldDescriptor::CPPTYPE_UINT32:
          to.SetUInt32(message, field, static_cast<uint32_t>(values.integer32));
          break;
        case FieldDescriptor::CPPTYPE_BOOL:
          to.SetBool(message, field, values.flag);
          break;
        case FieldDescriptor::CPPTYPE_ENUM:
          to.SetEnumValue(message, field, values.enumerator);
          break;
        case FieldDescriptor::CPPTYPE_STRING: {
          const std::string& value =
              field->type() == FieldDescriptor::TYPE_STRING ? values.text : values.bytes;
          add ? to.AddString(message, field, value) : to.SetString(message, field, value);
          break;
        }
        case FieldDescriptor::CPPTYPE_MESSAGE:
          if (depth == 0) break;
          FillEvery(values, depth - 1,
                    add ? to.AddMessage(message, field) : to.MutableMessage(message, field));
          break;
        default:
          break;
      }
    }
  }
}

struct NamedValues {
  const char* name;
  Values values;
  bool valid_scope;  // so that the fields after the scope are checked
};

std::vector<NamedValues> NastyValues() {
  constexpr int64_t kMax64 = std::numeric_limits<int64_t>::max();
  constexpr int64_t kMin64 = std::numeric_limits<int64_t>::min();
  constexpr int32_t kMax32 = std::numeric_limits<int32_t>::max();
  constexpr int32_t kMin32 = std::numeric_limits<int32_t>::min();
  const std::string id(16, 'i');
  return {
      {"ones", {1, 1, 1, true, "n", id, 1}, true},
      {"negative", {-1, -1, 1, true, "n", id, 1}, true},
      {"largest", {kMax64, kMax32, 1, true, "n", id, 1}, true},
      {"smallest", {kMin64, kMin32, 1, true, "n", id, 1}, true},
      {"unknown_enum", {1, 1, 99, false, "n", id, 1}, true},
      {"long_name", {1, 1, 1, false, std::string(10000, 'n'), id, 1}, true},
      {"long_scope", {1, 1, 1, false, std::string(129, 'n'), "short", 1}, false},
      {"many", {2, 2, 1, false, "n", id, 70}, true},
      {"twice_the_same", {3, 3, 2, true, "n", id, 2}, true},
      {"odd_text", {1, 1, 1, true, std::string("a\0\xF0\x9F\x98\x80 b", 8), "x", 1}, true},
      {"empty_text", {0, 0, 0, false, "", "", 1}, true},
  };
}

void SetScope(const std::string& group, Message* request) {
  const FieldDescriptor* field = request->GetDescriptor()->FindFieldByName("scope");
  if (field == nullptr) return;
  auto* scope = static_cast<v1::Scope*>(request->GetReflection()->MutableMessage(request, field));
  scope->Clear();
  scope->set_group(group);
}

}  // namespace

std::map<std::string, std::string> SampleDecodeInputs() {
  std::map<std::string, std::string> inputs;
  for (size_t i = 0; i < kMethodCount; ++i) {
    const auto method = static_cast<Method>(i);
    const std::string head = {static_cast<char>(i), kNoDeadline};
    // A method without numbers has the same request for all kinds of numbers.
    std::set<std::string> seen;
    for (const NamedValues& nasty : NastyValues()) {
      const auto request = NewRequest(method);
      FillEvery(nasty.values, 3, request.get());
      if (nasty.valid_scope) SetScope("g", request.get());
      const std::string bytes = request->SerializeAsString();
      if (!seen.insert(bytes).second) continue;
      inputs[absl::StrCat(GetMethod(method).name, "_", nasty.name)] = head + bytes;
    }
  }
  return inputs;
}

std::map<std::string, std::string> SampleRequestInputs() {
  std::map<std::string, std::string> inputs = SampleScripts();
  // Every method in turn, from a member, with each kind of value.
  for (const NamedValues& nasty : NastyValues()) {
    ScriptBuilder builder(World::kSharedFate);
    for (size_t i = 0; i < kMethodCount; ++i) {
      const auto method = static_cast<Method>(i);
      // They would end the group, or hold back joins, before the others have their turn.
      if (method == Method::kCloseGroup || method == Method::kDrain || method == Method::kLeave) {
        continue;
      }
      const auto request = NewRequest(method);
      FillEvery(nasty.values, 2, request.get());
      if (nasty.valid_scope) SetScope("g", request.get());
      builder.Call(static_cast<int>(i % 3), method, *request);
    }
    inputs[absl::StrCat("every_method_", nasty.name)] = builder.Build();
  }
  return inputs;
}

}  // namespace cohort::coordinator::fuzz
