#include "base/rpc/field_count.h"

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
constexpr int kNoGroup = -1;

// Takes the elements of a packed field of `size` bytes from `left`. False: as in Count.
bool CountElements(const FieldDescriptor& field, CodedInputStream& stream, int size, int* left) {
  switch (
      WireFormatLite::WireTypeForFieldType(static_cast<WireFormatLite::FieldType>(field.type()))) {
    case WireFormatLite::WIRETYPE_FIXED32:
      *left -= size / 4;
      return *left >= 0 && stream.Skip(size);
    case WireFormatLite::WIRETYPE_FIXED64:
      *left -= size / 8;
      return *left >= 0 && stream.Skip(size);
    default: {
      const CodedInputStream::Limit outer = stream.PushLimit(size);
      while (stream.BytesUntilLimit() > 0) {
        uint64_t number = 0;
        if (--*left < 0 || !stream.ReadVarint64(&number)) return false;
      }
      stream.PopLimit(outer);
      return true;
    }
  }
}

// Takes the fields up to the stream's limit, or up to the end of the group with the number `group`,
// from `left`. `type` null: they are of an unknown message. False: it is below 0, or the bytes are
// no message.
bool Count(const Descriptor* type, int group, CodedInputStream& stream, int depth, int* left) {
  if (depth > kMostDepth) return false;
  while (const uint32_t tag = stream.ReadTag()) {
    const int number = WireFormatLite::GetTagFieldNumber(tag);
    const WireFormatLite::WireType wire_type = WireFormatLite::GetTagWireType(tag);
    if (wire_type == WireFormatLite::WIRETYPE_END_GROUP) return number == group;
    if (--*left < 0) return false;
    if (wire_type == WireFormatLite::WIRETYPE_START_GROUP) {
      if (!Count(nullptr, number, stream, depth + 1, left)) return false;
      continue;
    }
    if (wire_type != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (!WireFormatLite::SkipField(&stream, tag)) return false;
      continue;
    }
    int size = 0;
    if (!stream.ReadVarintSizeAsInt(&size)) return false;
    const FieldDescriptor* const field =
        type == nullptr ? nullptr : type->FindFieldByNumber(number);
    if (field != nullptr && field->type() == FieldDescriptor::TYPE_MESSAGE) {
      const CodedInputStream::Limit outer = stream.PushLimit(size);
      if (!Count(field->message_type(), kNoGroup, stream, depth + 1, left)) return false;
      if (stream.BytesUntilLimit() != 0) return false;
      stream.PopLimit(outer);
    } else if (field != nullptr && field->is_packable()) {
      if (!CountElements(*field, stream, size, left)) return false;
    } else if (!stream.Skip(size)) {
      return false;
    }
  }
  // A tag that is too long ends nothing.
  return group == kNoGroup && stream.ConsumedEntireMessage();
}

}  // namespace

absl::Status CheckFieldCount(const Descriptor& type,
                             google::protobuf::io::ZeroCopyInputStream* bytes, int most) {
  CodedInputStream stream(bytes);
  int left = most;
  if (Count(&type, kNoGroup, stream, 0, &left) || left >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(type.name(), ": more than ", most, " fields, elements of lists included"));
}

}  // namespace cohort
