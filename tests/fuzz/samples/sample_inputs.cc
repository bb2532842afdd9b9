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
#include "tests/fuzz/samples/fill_every.h"
#include "tests/fuzz/samples/sample_scripts.h"
#include "tests/fuzz/samples/script_builder.h"
#include "tests/fuzz/scripts/wire_types.h"

namespace cohort::coordinator::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr char kNoDeadline = static_cast<char>(0xFF);

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
