#include "tests/fuzz/scripts/wire_types.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"

namespace cohort::coordinator::fuzz {
namespace {

using google::protobuf::Message;
using google::protobuf::MessageFactory;

struct Prototypes {
  const Message* request = nullptr;
  const Message* response = nullptr;
};

// Looked up once: the pool's lock and strings would cost more than a decode.
const Prototypes& PrototypesOf(Method method) {
  static const auto* const kAll = [] {
    auto* all = new std::array<Prototypes, kMethodCount>();
    for (size_t i = 0; i < kMethodCount; ++i) {
      const MethodInfo& info = GetMethod(static_cast<Method>(i));
      const auto* found = google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(
          absl::StrCat(info.service, ".", info.name));
      MessageFactory* factory = MessageFactory::generated_factory();
      (*all)[i] = {factory->GetPrototype(found->input_type()),
                   factory->GetPrototype(found->output_type())};
    }
    return all;
  }();
  return (*kAll)[static_cast<size_t>(method)];
}

}  // namespace

std::unique_ptr<Message> NewRequest(Method method) {
  return std::unique_ptr<Message>(PrototypesOf(method).request->New());
}

std::unique_ptr<Message> NewResponse(Method method) {
  return std::unique_ptr<Message>(PrototypesOf(method).response->New());
}

}  // namespace cohort::coordinator::fuzz
