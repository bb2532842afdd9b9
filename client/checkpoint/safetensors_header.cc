// The header's text: what is not believed of it, and how it is written.
#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/checkpoint/safetensors.h"
#include "nlohmann/json.hpp"

namespace cohort::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr char kMetadata[] = "__metadata__";
constexpr size_t kDataAlignment = 8;
// The header, a tensor, its shape.
constexpr int kMaxDepth = 3;

struct TypeName {
  DataType type;
  absl::string_view name;
};

constexpr TypeName kTypeNames[] = {
    {DataType::kBool, "BOOL"}, {DataType::kI8, "I8"},          {DataType::kU8, "U8"},
    {DataType::kI16, "I16"},   {DataType::kU16, "U16"},        {DataType::kI32, "I32"},
    {DataType::kU32, "U32"},   {DataType::kI64, "I64"},        {DataType::kU64, "U64"},
    {DataType::kF16, "F16"},   {DataType::kBF16, "BF16"},      {DataType::kF32, "F32"},
    {DataType::kF64, "F64"},   {DataType::kF8E4M3, "F8_E4M3"}, {DataType::kF8E5M2, "F8_E5M2"},
    {DataType::kC64, "C64"},
};

std::optional<DataType> FindType(absl::string_view name) {
  for (const TypeName& known : kTypeNames) {
    if (known.name == name) return known.type;
  }
  return std::nullopt;
}

// Names come from the file.
std::string Quoted(absl::string_view name) {
  constexpr size_t kShown = 120;
  return absl::StrCat("'", absl::CHexEscape(name.substr(0, kShown)),
                      name.size() > kShown ? "..." : "", "'");
}

// What the parser would pass over: names that are repeated, and nesting that no header has.
class Watch {
 public:
  // For Json::parse. False: what was found need not be kept.
  bool operator()(int /*depth*/, Json::parse_event_t event, Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        names_.emplace_back();
        if (names_.size() > kMaxDepth) Blame("is nested deeper than a header is");
        break;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end:
        if (!names_.empty()) names_.pop_back();
        break;
      case Json::parse_event_t::key: {
        const auto& name = parsed.get_ref<const std::string&>();
        if (!names_.empty() && !names_.back().insert(name).second) {
          Blame(absl::StrCat("has the name ", Quoted(name), " twice"));
        }
        break;
      }
      default:
        break;
    }
    return blame_.empty();
  }

  const std::string& blame() const { return blame_; }

 private:
  void Blame(std::string text) {
    if (blame_.empty()) blame_ = std::move(text);
  }

  std::vector<std::set<std::string>> names_;  // of each object that is open
  std::string blame_;
};

absl::Status Refuse(absl::string_view what, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", why));
}

// A whole number that is not negative.
absl::StatusOr<int64_t> ParseNumber(const Json& json, absl::string_view tensor,
                                    absl::string_view where) {
  if (json.is_number_unsigned() &&
      json.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()}) {
    return json.get<int64_t>();
  }
  return Refuse(tensor, absl::StrCat(where, " has ", json.dump(-1, ' ', true).substr(0, 60),
                                     " where a number of 0 or more belongs"));
}

absl::StatusOr<TensorEntry> ParseTensor(const std::string& name, const Json& json,
                                        int64_t data_bytes) {
  const std::string what = absl::StrCat("tensor ", Quoted(name));
  TensorEntry tensor;
  tensor.name = name;
  if (!json.is_object()) return Refuse(what, "is no JSON object");
  for (const char* field : {"dtype", "shape", "data_offsets"}) {
    if (!json.contains(field)) return Refuse(what, absl::StrCat("has no ", field));
  }
  if (json.size() != 3) return Refuse(what, "has more than dtype, shape and data_offsets");
  const Json& dtype = json["dtype"];
  const std::optional<DataType> type =
      dtype.is_string() ? FindType(dtype.get_ref<const std::string&>()) : std::nullopt;
  if (!type.has_value()) {
    return Refuse(what,
                  absl::StrCat("dtype ", dtype.dump(-1, ' ', true).substr(0, 60), " is not known"));
  }
  tensor.type = *type;

  int64_t bytes = SizeOf(*type);
  if (!json["shape"].is_array()) return Refuse(what, "shape is no array");
  for (const Json& number : json["shape"]) {
    COHORT_ASSIGN_OR_RETURN(const int64_t extent, ParseNumber(number, what, "shape"));
    tensor.shape.push_back(extent);
    if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      return Refuse(what, absl::StrCat("shape ", FormatShape(tensor.shape),
                                       " has more bytes than numbers reach"));
    }
  }
  const Json& offsets = json["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2) {
    return Refuse(what, "data_offsets is no array of two");
  }
  COHORT_ASSIGN_OR_RETURN(tensor.begin, ParseNumber(offsets[0], what, "data_offsets"));
  COHORT_ASSIGN_OR_RETURN(tensor.end, ParseNumber(offsets[1], what, "data_offsets"));
  if (tensor.begin > tensor.end) {
    return Refuse(
        what, absl::StrCat("begins at offset ", tensor.begin, ", behind its end at ", tensor.end));
  }
  if (tensor.end > data_bytes) {
    return Refuse(what, absl::StrCat("ends at offset ", tensor.end, ", but the file has ",
                                     data_bytes, " bytes of tensors"));
  }
  if (tensor.bytes() != bytes) {
    return Refuse(what, absl::StrCat(NameOf(*type), " ", FormatShape(tensor.shape), " takes ",
                                     bytes, " bytes, but offsets ", tensor.begin, " to ",
                                     tensor.end, " hold ", tensor.bytes()));
  }
  return tensor;
}

absl::Status ParseMetadata(const Json& json, std::map<std::string, std::string>& metadata) {
  if (!json.is_object()) return Refuse(kMetadata, "is no JSON object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) return Refuse(kMetadata, absl::StrCat(Quoted(key), " is no text"));
    metadata[key] = value.get<std::string>();
  }
  return absl::OkStatus();
}

// Precondition: by offset.
absl::Status CheckOrder(const Layout& layout) {
  int64_t end = 0;
  const TensorEntry* before = nullptr;
  for (const TensorEntry& tensor : layout.tensors) {
    const std::string what = absl::StrCat("tensor ", Quoted(tensor.name));
    if (tensor.begin < end) {
      return Refuse(what, absl::StrCat("begins at offset ", tensor.begin, ", inside of tensor ",
                                       Quoted(before->name), ", which ends at ", end));
    }
    if (tensor.begin > end) {
      return Refuse(what, absl::StrCat("begins at offset ", tensor.begin,
                                       ", and nobody's are the bytes from ", end, " on"));
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
        "a header of ", length, " bytes; ", kMaxHeaderBytes, " are the most that make sense"));
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
  if (text[0] != '{') return Refuse("the header", "does not begin with '{'");
  // Where the parser would stop, and call it the end.
  if (text.find('\0') != absl::string_view::npos) return Refuse("the header", "has a zero byte");
  Watch watch;
  const Json json = Json::parse(
      text.begin(), text.end(),
      [&watch](int depth, Json::parse_event_t event, Json& parsed) {
        return watch(depth, event, parsed);
      },
      /*allow_exceptions=*/false);
  if (!watch.blame().empty()) return Refuse("the header", watch.blame());
  if (!json.is_object()) return Refuse("the header", "is no JSON object");
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadata) {
      COHORT_RETURN_IF_ERROR(ParseMetadata(value, layout.metadata));
      continue;
    }
    COHORT_ASSIGN_OR_RETURN(TensorEntry tensor, ParseTensor(name, value, layout.data_bytes));
    layout.tensors.push_back(std::move(tensor));
  }
  std::sort(layout.tensors.begin(), layout.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
            });
  COHORT_RETURN_IF_ERROR(CheckOrder(layout));
  return layout;
}

std::string FormatHeader(const std::vector<TensorEntry>& tensors,
                         const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata.empty()) json[kMetadata] = metadata;
  int64_t offset = 0;
  for (const TensorEntry& tensor : tensors) {
    const int64_t end = offset + ElementCount(tensor.shape) * SizeOf(tensor.type);
    json[tensor.name] = {{"dtype", std::string(SafetensorsNameOf(tensor.type))},
                         {"shape", std::vector<int64_t>(tensor.shape.begin(), tensor.shape.end())},
                         {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = json.dump();
  text.append((kDataAlignment - text.size() % kDataAlignment) % kDataAlignment, ' ');
  std::string length;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length.push_back(static_cast<char>(text.size() >> (8 * i)));
  }
  return length + text;
}

}  // namespace cohort::checkpoint
