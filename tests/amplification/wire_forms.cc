#include "tests/amplification/wire_forms.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/wire_format_lite.h"
#include "tests/fuzz/samples/fill_every.h"

namespace cohort::amplification {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::internal::WireFormatLite;

// Deeper messages repeat those above.
constexpr int kDepth = 4;
// Tags and lengths of the messages around a field.
constexpr size_t kFrameRoom = 64;
constexpr int kFillDepth = 3;

std::string Varint(uint64_t number) {
  std::string bytes;
  for (; number > 0x7f; number >>= 7) bytes.push_back(static_cast<char>((number & 0x7f) | 0x80));
  bytes.push_back(static_cast<char>(number));
  return bytes;
}

std::string Tag(int field, WireFormatLite::WireType type) {
  return Varint(WireFormatLite::MakeTag(field, type));
}

std::string Delimited(int field, absl::string_view bytes) {
  return absl::StrCat(Tag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED), Varint(bytes.size()),
                      bytes);
}

bool IsText(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_STRING && !field.is_repeated();
}
bool IsRepeated(const FieldDescriptor& field) { return field.is_repeated(); }

using Path = std::vector<const FieldDescriptor*>;

// All fields that pass, each with the fields that lead to it.
void FindPaths(const Descriptor& message, bool (*passes)(const FieldDescriptor&), Path* path,
               std::vector<Path>* found) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor* const field = message.field(i);
    path->push_back(field);
    if (passes(*field)) found->push_back(*path);
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && path->size() < kDepth) {
      FindPaths(*field->message_type(), passes, path, found);
    }
    path->pop_back();
  }
}

std::vector<Path> PathsIn(const Descriptor& message, bool (*passes)(const FieldDescriptor&)) {
  std::vector<Path> found;
  Path path;
  FindPaths(message, passes, &path, &found);
  return found;
}

// `bytes`, which are fields of the last message of the path, in the messages around it.
std::string Within(const Path& path, std::string bytes) {
  for (size_t i = path.size() - 1; i > 0; --i) bytes = Delimited(path[i - 1]->number(), bytes);
  return bytes;
}

std::string Repeat(absl::string_view piece, size_t bytes) {
  std::string text;
  text.reserve(bytes);
  while (text.size() + piece.size() <= bytes) text.append(piece.data(), piece.size());
  return text;
}

std::string ManyOf(const FieldDescriptor& field, size_t bytes) {
  if (field.is_packable()) return Delimited(field.number(), std::string(bytes, '\1'));
  return Repeat(Delimited(field.number(), ""), bytes);
}

}  // namespace

std::string SmallMessage(const Descriptor& descriptor, const Adjust& adjust) {
  coordinator::fuzz::Values values;
  values.integer64 = values.integer32 = values.enumerator = 1;
  values.flag = true;
  values.text = "g";
  values.bytes = std::string(16, 'i');
  const std::unique_ptr<Message> message(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(&descriptor)->New());
  coordinator::fuzz::FillEvery(values, kFillDepth, message.get());
  if (adjust != nullptr) adjust(message.get());
  return message->SerializeAsString();
}

WireForms::WireForms(const Descriptor* descriptor, std::string head, size_t bytes)
    : descriptor_(descriptor), head_(std::move(head)), bytes_(bytes - kFrameRoom - head_.size()) {}

std::string WireForms::Largest() const {
  // The last one: fields of the request itself follow those of its scope.
  const std::vector<Path> texts =
      descriptor_ != nullptr ? PathsIn(*descriptor_, IsText) : std::vector<Path>();
  const std::string text(bytes_, 'x');
  if (texts.empty()) return absl::StrCat(head_, Delimited(1, text));
  return absl::StrCat(head_, Within(texts.back(), Delimited(texts.back().back()->number(), text)));
}

std::vector<std::string> WireForms::Elements() const {
  if (descriptor_ == nullptr) return {absl::StrCat(head_, Repeat(Delimited(1, ""), bytes_))};
  std::vector<std::string> requests;
  for (const Path& path : PathsIn(*descriptor_, IsRepeated)) {
    requests.push_back(absl::StrCat(head_, Within(path, ManyOf(*path.back(), bytes_))));
  }
  return requests;
}

std::string WireForms::Unknown() const {
  // A tag of a field up to 15 has one byte.
  int number = 15;
  while (descriptor_ != nullptr && number > 1 &&
         descriptor_->FindFieldByNumber(number) != nullptr) {
    --number;
  }
  return absl::StrCat(head_, Repeat(absl::StrCat(Tag(number, WireFormatLite::WIRETYPE_START_GROUP),
                                                 Tag(number, WireFormatLite::WIRETYPE_END_GROUP)),
                                    bytes_));
}

std::string CompressedZeros(size_t bytes) {
  constexpr int kGzip = 31;
  constexpr size_t kPiece = size_t{1} << 20;
  z_stream stream = {};
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzip, 9, Z_DEFAULT_STRATEGY) != Z_OK) {
    std::abort();
  }
  std::string zeros(kPiece, '\0');
  std::string out;
  std::string buffer(kPiece, '\0');
  for (size_t left = bytes, state = 0; state != Z_STREAM_END;) {
    if (stream.avail_in == 0 && left > 0) {
      stream.next_in = reinterpret_cast<Bytef*>(zeros.data());
      stream.avail_in = static_cast<uInt>(std::min(left, kPiece));
      left -= stream.avail_in;
    }
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    state = static_cast<size_t>(deflate(&stream, left == 0 ? Z_FINISH : Z_NO_FLUSH));
    out.append(buffer, 0, buffer.size() - stream.avail_out);
  }
  deflateEnd(&stream);
  return out;
}

}  // namespace cohort::amplification
