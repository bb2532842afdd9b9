// Parses the untrusted text of the header, and writes it.
//
// One file, though long: the tables of types serve both.
#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "client/checkpoint/safetensors.h"
#include "nlohmann/json.hpp"

namespace cohort::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr char kMetadata[] = "__metadata__";
constexpr char kType[] = "dtype";
constexpr char kShape[] = "shape";
constexpr char kOffsets[] = "data_offsets";
constexpr size_t kDataAlignment = 8;

struct TypeName {
  DataType type;
  absl::string_view name;
};

constexpr TypeName kTypeNames[] = {
    {DataType::kBool, "BOOL"},
    {DataType::kI8, "I8"},
    {DataType::kU8, "U8"},
    {DataType::kI16, "I16"},
    {DataType::kU16, "U16"},
    {DataType::kI32, "I32"},
    {DataType::kU32, "U32"},
    {DataType::kI64, "I64"},
    {DataType::kU64, "U64"},
    {DataType::kF16, "F16"},
    {DataType::kBF16, "BF16"},
    {DataType::kF32, "F32"},
    {DataType::kF64, "F64"},
    {DataType::kF8E4M3, "F8_E4M3"},
    {DataType::kF8E5M2, "F8_E5M2"},
    {DataType::kC64, "C64"},
    {DataType::kF8E8M0, "F8_E8M0"},
    {DataType::kF8E4M3Fnuz, "F8_E4M3FNUZ"},
    {DataType::kF8E5M2Fnuz, "F8_E5M2FNUZ"},
};

// Types of the format that no tensor of Cohort has. Their bytes travel as they are. Elements of
// fewer than eight bits are packed without gaps.
struct StoredType {
  absl::string_view name;
  int64_t bits;
};

constexpr StoredType kStoredTypes[] = {{"F4", 4}, {"F6_E2M3", 6}, {"F6_E3M2", 6}};

std::optional<DataType> FindType(absl::string_view name) {
  for (const TypeName& known : kTypeNames) {
    if (known.name == name) return known.type;
  }
  return std::nullopt;
}

// The size of one element; nothing for a type that this version does not know.
std::optional<int64_t> BitsOf(absl::string_view name) {
  const std::optional<DataType> type = FindType(name);
  if (type.has_value()) return 8 * SizeOf(*type);
  for (const StoredType& known : kStoredTypes) {
    if (known.name == name) return known.bits;
  }
  return std::nullopt;
}

// Names come from the untrusted file.
std::string Quoted(absl::string_view name) {
  constexpr size_t kShown = 120;
  return absl::StrCat("'", absl::CHexEscape(name.substr(0, kShown)),
                      name.size() > kShown ? "..." : "", "'");
}

absl::Status Invalid(absl::string_view what, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", why));
}

// Builds a Layout from the parser's events, without a document in between: each event takes
// constant time. (nlohmann's parser with a callback visits all siblings of each object that ends.)
// The parser does not recurse, and stops if an event returns false.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(Layout& layout) : layout_(layout) {}

  const absl::Status& status() const { return status_; }

  bool null() override { return Other("null"); }
  bool boolean(bool value) override { return Other(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return Other(absl::StrCat(value)); }
  bool number_float(number_float_t value, const std::string&) override {
    return Other(Json(value).dump());
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (list_ == nullptr || value > uint64_t{std::numeric_limits<int64_t>::max()}) {
      return Other(absl::StrCat(value));
    }
    list_->push_back(static_cast<int64_t>(value));
    return true;
  }
  bool string(string_t& value) override;
  bool binary(binary_t&) override { return Other("binary data"); }

  bool start_object(size_t) override;
  bool key(string_t& name) override;
  bool end_object() override;
  bool start_array(size_t) override;
  bool end_array() override;

  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    return Blame("the header", absl::StrCat("is no JSON object: error at byte ", position));
  }

 private:
  // The object that is open.
  enum class Place { kBegin, kTensors, kMetadata, kTensor, kEnd };

  bool Blame(absl::string_view what, absl::string_view why) {
    if (status_.ok()) status_ = Invalid(what, why);
    return false;
  }
  std::string Tensor() const { return absl::StrCat("tensor ", Quoted(tensor_.name)); }
  // A value of a kind that the header cannot have there.
  bool Other(absl::string_view text);
  bool EndTensor();
  // Checks that the tensor's type and shape agree with its offsets.
  bool CheckSize();

  Layout& layout_;
  absl::Status status_;
  Place place_ = Place::kBegin;
  absl::flat_hash_set<std::string> names_;
  std::string key_;  // of the header or of the metadata
  TensorEntry tensor_;
  std::string type_;  // of tensor_, as the file names it
  // The fields of tensor_: the one being read, and those already read.
  std::string field_;
  bool has_type_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  absl::InlinedVector<int64_t, 6> offsets_;
  absl::InlinedVector<int64_t, 6>* list_ = nullptr;  // the list that is open
};

bool HeaderReader::Other(absl::string_view text) {
  switch (place_) {
    case Place::kBegin:
    case Place::kEnd:
      return Blame("the header", "is no JSON object");
    case Place::kTensors:
      return Blame(key_ == kMetadata ? kMetadata : absl::StrCat("tensor ", Quoted(key_)),
                   "is no JSON object");
    case Place::kMetadata:
      return Blame(kMetadata, absl::StrCat(Quoted(key_), " is no text"));
    case Place::kTensor:
      break;
  }
  if (list_ != nullptr) {
    return Blame(Tensor(), absl::StrCat(field_, " has ", text.substr(0, 60),
                                        " where a number of 0 or more belongs"));
  }
  if (field_ == kType) {
    return Blame(Tensor(), absl::StrCat("dtype ", text.substr(0, 60), " is no name of a type"));
  }
  return Blame(Tensor(),
               field_ == kShape ? "shape is no array" : "data_offsets is no array of two");
}

bool HeaderReader::string(string_t& value) {
  if (place_ == Place::kMetadata) {
    layout_.metadata[key_] = std::move(value);
    return true;
  }
  if (place_ == Place::kTensor && list_ == nullptr && field_ == kType && !value.empty()) {
    tensor_.type = FindType(value);
    type_ = std::move(value);
    return true;
  }
  return Other(Json(value.substr(0, 60)).dump(-1, ' ', true, Json::error_handler_t::replace));
}

bool HeaderReader::start_object(size_t) {
  switch (place_) {
    case Place::kBegin:
      place_ = Place::kTensors;
      return true;
    case Place::kTensors:
      if (key_ == kMetadata) {
        place_ = Place::kMetadata;
        return true;
      }
      place_ = Place::kTensor;
      tensor_ = TensorEntry();
      tensor_.name = std::move(key_);
      has_type_ = has_shape_ = has_offsets_ = false;
      offsets_.clear();
      return true;
    default:
      return list_ != nullptr ? Blame("the header", "is nested too deep") : Other("an object");
  }
}

bool HeaderReader::key(string_t& name) {
  bool is_new = true;
  switch (place_) {
    case Place::kTensors:
      is_new = names_.insert(name).second;
      break;
    case Place::kMetadata:
      is_new = layout_.metadata.emplace(name, "").second;
      break;
    default: {
      bool* const had = name == kType      ? &has_type_
                        : name == kShape   ? &has_shape_
                        : name == kOffsets ? &has_offsets_
                                           : nullptr;
      if (had == nullptr) return Blame(Tensor(), "has more than dtype, shape and data_offsets");
      is_new = !*had;
      *had = true;
      break;
    }
  }
  if (!is_new) return Blame("the header", absl::StrCat("has the name ", Quoted(name), " twice"));
  (place_ == Place::kTensor ? field_ : key_) = std::move(name);
  return true;
}

bool HeaderReader::end_object() {
  if (place_ == Place::kTensor && !EndTensor()) return false;
  place_ = place_ == Place::kTensors ? Place::kEnd : Place::kTensors;
  return true;
}

bool HeaderReader::start_array(size_t) {
  if (list_ != nullptr) return Blame("the header", "is nested too deep");
  if (place_ != Place::kTensor || field_ == kType) return Other("an array");
  list_ = field_ == kShape ? &tensor_.shape : &offsets_;
  return true;
}

bool HeaderReader::end_array() {
  list_ = nullptr;
  return true;
}

bool HeaderReader::EndTensor() {
  if (!has_type_) return Blame(Tensor(), "has no dtype");
  if (!has_shape_) return Blame(Tensor(), "has no shape");
  if (!has_offsets_) return Blame(Tensor(), "has no data_offsets");
  if (offsets_.size() != 2) return Blame(Tensor(), "data_offsets is no array of two");
  tensor_.begin = offsets_[0];
  tensor_.end = offsets_[1];
  if (tensor_.begin > tensor_.end) {
    return Blame(Tensor(), absl::StrCat("begins at offset ", tensor_.begin, ", behind its end at ",
                                        tensor_.end));
  }
  if (tensor_.end > layout_.data_bytes) {
    return Blame(Tensor(), absl::StrCat("ends at offset ", tensor_.end, ", but the file has ",
                                        layout_.data_bytes, " bytes of tensors"));
  }
  if (!CheckSize()) return false;
  layout_.tensors.push_back(std::move(tensor_));
  return true;
}

bool HeaderReader::CheckSize() {
  const std::optional<int64_t> bits = BitsOf(type_);
  // The offsets alone tell the size of a type that is newer than this program.
  if (!bits.has_value()) return true;
  const std::string shape = FormatShape(tensor_.shape);
  // 64 bits do not hold the number of bits of the largest file.
  __extension__ using Wide = __int128;
  constexpr Wide kMost = Wide{8} * std::numeric_limits<int64_t>::max();
  Wide size = *bits;
  for (const int64_t extent : tensor_.shape) {
    if (__builtin_mul_overflow(size, Wide{extent}, &size) || size > kMost) {
      return Blame(Tensor(), absl::StrCat("shape ", shape, " has a size in bytes that overflows"));
    }
  }
  const std::string what = absl::StrCat(type_, " ", shape);
  if (size % 8 != 0) {
    return Blame(Tensor(), absl::StrCat(what, " takes ", static_cast<int64_t>(size % 8),
                                        " bits more than whole bytes; the extents must fill the "
                                        "last byte"));
  }
  const auto bytes = static_cast<int64_t>(size / 8);
  if (tensor_.bytes() == bytes) return true;
  return Blame(Tensor(),
               absl::StrCat(what, " takes ", bytes, " bytes, but offsets ", tensor_.begin, " to ",
                            tensor_.end, " hold ", tensor_.bytes()));
}

// Precondition: by offset.
absl::Status CheckOrder(const Layout& layout) {
  int64_t end = 0;
  const TensorEntry* before = nullptr;
  for (const TensorEntry& tensor : layout.tensors) {
    if (tensor.begin < end) {
      const std::string what = absl::StrCat("tensor ", Quoted(tensor.name));
      return Invalid(what, absl::StrCat("begins at offset ", tensor.begin, ", inside of tensor ",
                                        Quoted(before->name), ", which ends at ", end));
    }
    if (tensor.begin > end) {
      const std::string what = absl::StrCat("tensor ", Quoted(tensor.name));
      return Invalid(what, absl::StrCat("begins at offset ", tensor.begin,
                                        ", and no tensor has the bytes from ", end, " on"));
    }
    end = tensor.end;
    before = &tensor;
  }
  if (end == layout.data_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the last tensor ends at offset ", end,
                                                 ", but the file has ", layout.data_bytes,
                                                 " bytes of tensors"));
}

}  // namespace

absl::string_view SafetensorsNameOf(DataType type) {
  for (const TypeName& known : kTypeNames) {
    if (known.type == type) return known.name;
  }
  return "";
}

absl::StatusOr<int64_t> HeaderBytes(absl::string_view front, int64_t file_bytes) {
  if (file_bytes < kLengthBytes || front.size() < size_t{kLengthBytes}) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_bytes, " bytes are too few for the length of a header"));
  }
  uint64_t length = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i) {
    length = length << 8 | static_cast<unsigned char>(front[static_cast<size_t>(i)]);
  }
  if (length > uint64_t{kMaxHeaderBytes}) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a header of ", length, " bytes; ", kMaxHeaderBytes, " are the most that are allowed"));
  }
  if (length < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("a header of ", length, " bytes is no JSON object"));
  }
  const int64_t bytes = kLengthBytes + static_cast<int64_t>(length);
  if (bytes <= file_bytes) return bytes;
  return absl::InvalidArgumentError(
      absl::StrCat("the header should end at byte ", bytes, ", but the file has ", file_bytes));
}

absl::StatusOr<Layout> ParseHeader(absl::string_view header, int64_t file_bytes) {
  Layout layout;
  COHORT_ASSIGN_OR_RETURN(layout.header_bytes, HeaderBytes(header, file_bytes));
  if (layout.header_bytes != static_cast<int64_t>(header.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("a header of ", layout.header_bytes, " bytes came as ", header.size()));
  }
  layout.data_bytes = file_bytes - layout.header_bytes;
  const absl::string_view text = header.substr(kLengthBytes);
  if (text[0] != '{') return Invalid("the header", "does not begin with '{'");
  // Bytes at which the parser would stop as if the text ended.
  if (text.find('\0') != absl::string_view::npos) return Invalid("the header", "has a zero byte");
  HeaderReader reader(layout);
  const bool parsed = Json::sax_parse(text.begin(), text.end(), &reader);
  COHORT_RETURN_IF_ERROR(reader.status());
  if (!parsed) return Invalid("the header", "is no JSON object");
  std::sort(layout.tensors.begin(), layout.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
            });
  COHORT_RETURN_IF_ERROR(CheckOrder(layout));
  return layout;
}

std::string FormatHeader(const std::vector<TensorEntry>& tensors,
                         const std::map<std::string, std::string>& metadata) {
  // Builds the text itself: nlohmann's ordered objects compare all members for each one added.
  std::string text = "{";
  if (!metadata.empty()) absl::StrAppend(&text, "\"", kMetadata, "\":", Json(metadata).dump());
  int64_t offset = 0;
  for (const TensorEntry& tensor : tensors) {
    const int64_t end = offset + ElementCount(tensor.shape) * SizeOf(*tensor.type);
    absl::StrAppend(&text, text.size() > 1 ? "," : "", Json(tensor.name).dump(), ":{\"dtype\":\"",
                    SafetensorsNameOf(*tensor.type), "\",\"shape\":[",
                    absl::StrJoin(tensor.shape, ","), "],\"data_offsets\":[", offset, ",", end,
                    "]}");
    offset = end;
  }
  text += "}";
  text.append((kDataAlignment - text.size() % kDataAlignment) % kDataAlignment, ' ');
  std::string length;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length.push_back(static_cast<char>(text.size() >> (8 * i)));
  }
  return length + text;
}

}  // namespace cohort::checkpoint
