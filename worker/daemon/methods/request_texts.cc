#include "worker/daemon/methods/request_texts.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/text/printable.h"

namespace cohort::worker {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr size_t kExcerptBytes = 200;

constexpr absl::string_view kNames[] = {"tenant", "group", "member", "name"};
// The elements of tensors and objects. Other limits hold for these.
constexpr absl::string_view kData[] = {
    "cohort.v1.TensorRef.inline",
    "cohort.v1.WriteTensorRequest.bytes",
    "cohort.v1.RunObjectRequest.object",
};
// An abort does not fail for its text, which the method cuts.
constexpr absl::string_view kCut[] = {"cohort.v1.AbortGroupRequest.cause"};

bool IsText(const FieldDescriptor& field) {
  if (absl::c_linear_search(kCut, field.full_name())) return false;
  if (field.type() == FieldDescriptor::TYPE_STRING) return true;
  return field.type() == FieldDescriptor::TYPE_BYTES &&
         !absl::c_linear_search(kData, field.full_name());
}

absl::Status TooLong(const FieldDescriptor& field, size_t size, size_t most) {
  return absl::InvalidArgumentError(
      absl::StrCat(field.name(), ": ", size, " bytes; at most ", most));
}

}  // namespace

RequestTexts::RequestTexts(const google::protobuf::Descriptor& type) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* const field = type.field(i);
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      auto texts = std::make_unique<const RequestTexts>(*field->message_type());
      if (texts->texts_.empty() && texts->parts_.empty()) continue;
      parts_.push_back({field, std::move(texts)});
    } else if (IsText(*field)) {
      const bool is_name = absl::c_linear_search(kNames, field->name());
      texts_.push_back({field, is_name ? kMaxNameBytes : kMaxTextBytes});
    }
  }
}

absl::Status RequestTexts::Check(const Message& request) const {
  const google::protobuf::Reflection& reflection = *request.GetReflection();
  std::string scratch;
  for (const Text& text : texts_) {
    if (!text.field->is_repeated()) {
      const size_t size = reflection.GetStringReference(request, text.field, &scratch).size();
      if (size > text.most) return TooLong(*text.field, size, text.most);
      continue;
    }
    const int count = reflection.FieldSize(request, text.field);
    if (count > kMaxTexts) {
      return absl::InvalidArgumentError(
          absl::StrCat(text.field->name(), ": ", count, " texts; at most ", kMaxTexts));
    }
    for (int i = 0; i < count; ++i) {
      const size_t size =
          reflection.GetRepeatedStringReference(request, text.field, i, &scratch).size();
      if (size > text.most) return TooLong(*text.field, size, text.most);
    }
  }
  for (const Part& part : parts_) {
    if (!part.field->is_repeated()) {
      if (!reflection.HasField(request, part.field)) continue;
      const absl::Status checked = part.texts->Check(reflection.GetMessage(request, part.field));
      if (!checked.ok()) return checked;
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(request, part.field); ++i) {
      const absl::Status checked =
          part.texts->Check(reflection.GetRepeatedMessage(request, part.field, i));
      if (!checked.ok()) return checked;
    }
  }
  return absl::OkStatus();
}

std::string Excerpt(absl::string_view text) {
  if (text.size() <= kExcerptBytes) return Printable(text);
  return absl::StrCat(Printable(text.substr(0, kExcerptBytes)), "... (", text.size(), " bytes)");
}

}  // namespace cohort::worker
