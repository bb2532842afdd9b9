#include "base/rpc/field_count.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace cohort {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// As deep as protobuf parses.
constexpr int kMostDepth = 100;

// The elements of a packed field.
int CountElements(const FieldDescriptor& field, absl::string_view bytes) {
  switch (WireFormatLite::WireTypeForFieldType(
      static_cast<WireFormatLite::FieldType>(field.type()))) {
    case WireFormatLite::WIRETYPE_FIXED32:
      return static_cast<int>(bytes.size() / 4);
    case WireFormatLite::WIRETYPE_FIXED64:
      return static_cast<int>(bytes.size() / 8);
    default:  // the last byte of each number has no high bit
      return static_cast<int>(
          std::count_if(bytes.begin(), bytes.end(), [](char byte) { return byte >= 0; }));
  }
}

// Takes the fields of `bytes` from `left`. False: it is below 0, or the bytes are no message.
bool Count(const Descriptor& type, absl::string_view bytes, int depth, int* left) {
  if (depth > kMostDepth) return false;
  CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes.data()),
                          static_cast<int>(bytes.size()));
  while (const uint32_t tag = stream.ReadTag()) {
    if (--*left < 0) return false;
    if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (!WireFormatLite::SkipField(&stream, tag)) return false;
      continue;
    }
    int size = 0;
    if (!stream.ReadVarintSizeAsInt(&size)) return false;
    const auto at = static_cast<size_t>(stream.CurrentPosition());
    if (!stream.Skip(size)) return false;
    const FieldDescriptor* const field =
        type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    if (field == nullptr) continue;
    const absl::string_view inner = bytes.substr(at, static_cast<size_t>(size));
    if (field->type() == FieldDescriptor::TYPE_MESSAGE) {
      if (!Count(*field->message_type(), inner, depth + 1, left)) return false;
    } else if (field->is_packable()) {
      *left -= CountElements(*field, inner);
      if (*left < 0) return false;
    }
  }
  return true;
}

}  // namespace

absl::Status CheckFieldCount(const Descriptor& type, absl::string_view bytes, int most) {
  int left = most;
  if (Count(type, bytes, 0, &left) || left >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a ", type.name(), " of ", bytes.size(), " bytes has more than ", most,
                   " fields, elements of lists included"));
}

}  // namespace cohort
