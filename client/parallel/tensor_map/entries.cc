#include "client/parallel/tensor_map/entries.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::parallel {
namespace {

constexpr int kVersion = 1;
// Items of a list for which there is room from the beginning: a count is no more than a claim.
constexpr int64_t kReserved = 256;

absl::Status TooMuch(absl::string_view what, int64_t most) {
  return absl::ResourceExhaustedError(
      absl::StrCat("a map of more than ", most, " ", what, ", the most that travel"));
}

// In bytes; of a shape from elsewhere. Errors: RESOURCE_EXHAUSTED.
absl::StatusOr<int64_t> CheckedBytes(DataType type, const Shape& shape) {
  int64_t bytes = SizeOf(type);
  bool too_many = false;
  for (const int64_t extent : shape) {
    if (extent == 0) return 0;
    too_many = too_many || __builtin_mul_overflow(bytes, extent, &bytes);
  }
  if (!too_many && bytes <= kMaxTensorBytes) return bytes;
  return TooMuch("bytes of tensors", kMaxTensorBytes);
}

// --- Out.

class EntryWriter {
 public:
  explicit EntryWriter(const PartsOf* parts) : parts_(parts) { AddByte(kVersion); }

  absl::Status Add(const TensorMap& map) {
    COHORT_RETURN_IF_ERROR(Enter(map.size()));
    for (const TensorMap::Entry& entry : map) {
      AddText(entry.key);
      way_.push_back({entry.key, kKey});
      COHORT_RETURN_IF_ERROR(Add(entry.value));
      way_.pop_back();
    }
    --depth_;
    return absl::OkStatus();
  }

  absl::Status Add(const Value& value) {
    if (++values_ > kMaxValues) return TooMuch("values", kMaxValues);
    const ValueKind kind = value.kind();
    AddByte(static_cast<int>(kind));
    switch (kind) {
      case ValueKind::kNull:
        break;
      case ValueKind::kBool:
        AddByte(*value.As<bool>() ? 1 : 0);
        break;
      case ValueKind::kInt: {
        const auto number = static_cast<uint64_t>(*value.As<int64_t>());
        AddVarint(number << 1 ^ (*value.As<int64_t>() < 0 ? ~uint64_t{0} : 0));
        break;
      }
      case ValueKind::kDouble: {
        uint64_t bits = 0;
        std::memcpy(&bits, value.As<double>(), sizeof(bits));
        for (size_t i = 0; i < sizeof(bits); ++i) AddByte(static_cast<int>(bits >> 8 * i & 0xFF));
        break;
      }
      case ValueKind::kText:
        AddText(*value.As<std::string>());
        break;
      case ValueKind::kBytes:
        AddText(value.As<Bytes>()->data);
        break;
      case ValueKind::kList:
        COHORT_RETURN_IF_ERROR(Add(*value.As<List>()));
        break;
      case ValueKind::kTensor:
        COHORT_RETURN_IF_ERROR(Add(*value.As<Tensor>()));
        break;
      case ValueKind::kMap:
        COHORT_RETURN_IF_ERROR(Add(*value.As<TensorMap>()));
        break;
    }
    if (static_cast<int64_t>(out_.entries.size()) <= kMaxEntryBytes) return absl::OkStatus();
    return TooMuch("bytes of entries", kMaxEntryBytes);
  }

  EncodedMap Take() && { return std::move(out_); }

 private:
  static constexpr int64_t kKey = -1;
  // A key, or an index.
  struct Step {
    absl::string_view key;
    int64_t index;
  };

  absl::Status Add(const List& list) {
    COHORT_RETURN_IF_ERROR(Enter(list.size()));
    way_.push_back({"", 0});
    for (const Value& value : list) {
      COHORT_RETURN_IF_ERROR(Add(value));
      ++way_.back().index;
    }
    way_.pop_back();
    --depth_;
    return absl::OkStatus();
  }

  absl::Status Add(const Tensor& tensor) {
    if (parts_ == nullptr) return Refuse("is a tensor, where plain values alone can go");
    TensorEntry entry = {tensor.type(), tensor.device().is_cuda(), 1, tensor.shape()};
    if (tensor.data() == nullptr && tensor.count() > 0) {
      return Refuse(absl::StrCat(tensor.ToString(), " has no memory"));
    }
    if (tensor.dims() > kMaxDims) return Refuse(absl::StrCat("has ", tensor.dims(), " dimensions"));
    COHORT_ASSIGN_OR_RETURN(const int64_t bytes, CheckedBytes(entry.type, entry.shape));
    if ((bytes_ += bytes) > kMaxTensorBytes) return TooMuch("bytes of tensors", kMaxTensorBytes);
    COHORT_ASSIGN_OR_RETURN(entry.parts, (*parts_)([this] { return path(); }, tensor));
    if (entry.parts < 1 || entry.parts > kMaxParts || tensor.count() % entry.parts != 0) {
      return Refuse(absl::StrCat("is ", tensor.ToString(), ", whose ", tensor.count(),
                                 " elements do not divide into ", entry.parts, " parts"));
    }
    AddByte(static_cast<int>(entry.type));
    AddByte(entry.on_gpu ? 1 : 0);
    AddVarint(static_cast<uint64_t>(entry.parts));
    AddVarint(entry.shape.size());
    for (const int64_t extent : entry.shape) AddVarint(static_cast<uint64_t>(extent));
    out_.tensors.push_back(tensor);
    out_.tensor_entries.push_back(std::move(entry));
    return absl::OkStatus();
  }

  absl::Status Enter(size_t count) {
    if (++depth_ > kMaxDepth) {
      return Refuse(absl::StrCat("is nested deeper than ", kMaxDepth, " maps and lists"));
    }
    AddVarint(count);
    return absl::OkStatus();
  }

  absl::Status Refuse(absl::string_view why) const {
    return absl::InvalidArgumentError(absl::StrCat("entry ", FormatPath(path()), " ", why));
  }
  Path path() const {
    Path path;
    for (const Step& step : way_) {
      path.push_back(step.index == kKey ? std::string(step.key) : absl::StrCat(step.index));
    }
    return path;
  }

  void AddByte(int byte) { out_.entries.push_back(static_cast<char>(byte)); }
  void AddVarint(uint64_t number) {
    for (; number >= 0x80; number >>= 7) AddByte(static_cast<int>(number & 0x7F) | 0x80);
    AddByte(static_cast<int>(number));
  }
  void AddText(absl::string_view text) {
    AddVarint(text.size());
    out_.entries.append(text.data(), text.size());
  }

  const PartsOf* const parts_;  // null: there are to be no tensors
  EncodedMap out_;
  std::vector<Step> way_;
  int depth_ = 0;
  int64_t values_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace

// --- In.

// Believes nothing; what is made is at most a small multiple of the bytes that are there.
class EntryReader {
 public:
  EntryReader(absl::string_view bytes, bool has_tensors)
      : has_tensors_(has_tensors), all_(bytes.size()), bytes_(bytes) {}

  absl::Status ReadVersion() {
    if (bytes_.size() > static_cast<size_t>(kMaxEntryBytes)) {
      return TooMuch("bytes of entries", kMaxEntryBytes);
    }
    COHORT_ASSIGN_OR_RETURN(const uint8_t version, ReadByte());
    if (version == kVersion) return absl::OkStatus();
    return Refuse(absl::StrCat("are of version ", version, ", and this rank knows ", kVersion));
  }

  absl::StatusOr<TensorMap> ReadMap() {
    COHORT_ASSIGN_OR_RETURN(const int64_t count, Enter());
    TensorMap map;
    for (int64_t i = 0; i < count; ++i) {
      COHORT_ASSIGN_OR_RETURN(const absl::string_view key, ReadText());
      COHORT_ASSIGN_OR_RETURN(Value value, ReadValue());
      map.Set(key, std::move(value));
      if (map.size() != static_cast<size_t>(i) + 1) return Refuse("have a key twice");
    }
    --depth_;
    return map;
  }

  absl::StatusOr<Value> ReadValue() {
    if (++values_ > kMaxValues) return TooMuch("values", kMaxValues);
    COHORT_ASSIGN_OR_RETURN(const uint8_t kind, ReadByte());
    switch (static_cast<ValueKind>(kind)) {
      case ValueKind::kNull:
        return Value();
      case ValueKind::kBool: {
        COHORT_ASSIGN_OR_RETURN(const uint8_t value, ReadByte());
        if (value > 1) return Refuse("have a bool that is neither 0 nor 1");
        return Value(value == 1);
      }
      case ValueKind::kInt: {
        COHORT_ASSIGN_OR_RETURN(const uint64_t zigzag, ReadVarint());
        const uint64_t bits = zigzag >> 1 ^ ((zigzag & 1) != 0 ? ~uint64_t{0} : 0);
        return Value(static_cast<int64_t>(bits));
      }
      case ValueKind::kDouble: {
        COHORT_ASSIGN_OR_RETURN(const absl::string_view bytes, ReadBytes(sizeof(double)));
        uint64_t bits = 0;
        for (size_t i = 0; i < sizeof(bits); ++i) {
          bits |= uint64_t{static_cast<uint8_t>(bytes[i])} << 8 * i;
        }
        double value = 0;
        std::memcpy(&value, &bits, sizeof(value));
        return Value(value);
      }
      case ValueKind::kText: {
        COHORT_ASSIGN_OR_RETURN(const absl::string_view text, ReadText());
        return Value(text);
      }
      case ValueKind::kBytes: {
        COHORT_ASSIGN_OR_RETURN(const absl::string_view text, ReadText());
        return Value(Bytes{std::string(text)});
      }
      case ValueKind::kList: {
        COHORT_ASSIGN_OR_RETURN(const int64_t count, Enter());
        List list;
        list.reserve(static_cast<size_t>(std::min<int64_t>(count, kReserved)));
        for (int64_t i = 0; i < count; ++i) {
          COHORT_ASSIGN_OR_RETURN(Value value, ReadValue());
          list.push_back(std::move(value));
        }
        --depth_;
        return Value(std::move(list));
      }
      case ValueKind::kTensor:
        return ReadTensor();
      case ValueKind::kMap: {
        COHORT_ASSIGN_OR_RETURN(TensorMap map, ReadMap());
        return Value(std::move(map));
      }
    }
    return Refuse(absl::StrCat("have a value of kind ", kind, ", which nobody knows"));
  }

  absl::Status ReadEnd() const {
    if (bytes_.empty()) return absl::OkStatus();
    return Refuse(absl::StrCat("have ", bytes_.size(), " bytes behind their end"));
  }

  void SetMap(TensorMap map) { out_.map_ = std::move(map); }
  DecodedMap Take() && { return std::move(out_); }

 private:
  absl::StatusOr<Value> ReadTensor() {
    if (!has_tensors_) return Refuse("have a tensor, where plain values alone can be");
    TensorEntry entry;
    COHORT_ASSIGN_OR_RETURN(const uint8_t type, ReadByte());
    if (!IsDataType(type)) return Refuse(absl::StrCat("have a tensor of type ", type));
    entry.type = static_cast<DataType>(type);
    COHORT_ASSIGN_OR_RETURN(const uint8_t place, ReadByte());
    if (place > 1) return Refuse(absl::StrCat("have a tensor in place ", place));
    entry.on_gpu = place == 1;
    COHORT_ASSIGN_OR_RETURN(const uint64_t parts, ReadVarint());
    if (parts < 1 || parts > kMaxParts) return Refuse(absl::StrCat("have ", parts, " parts"));
    entry.parts = static_cast<int>(parts);
    COHORT_ASSIGN_OR_RETURN(const uint64_t dims, ReadVarint());
    if (dims > kMaxDims) return Refuse(absl::StrCat("have a tensor of ", dims, " dimensions"));
    for (uint64_t i = 0; i < dims; ++i) {
      COHORT_ASSIGN_OR_RETURN(const uint64_t extent, ReadVarint());
      if (extent > uint64_t{std::numeric_limits<int64_t>::max()}) {
        return Refuse(absl::StrCat("have an extent of ", extent));
      }
      entry.shape.push_back(static_cast<int64_t>(extent));
    }
    COHORT_ASSIGN_OR_RETURN(const int64_t bytes, CheckedBytes(entry.type, entry.shape));
    if ((tensor_bytes_ += bytes) > kMaxTensorBytes) {
      return TooMuch("bytes of tensors", kMaxTensorBytes);
    }
    if (bytes / SizeOf(entry.type) % entry.parts != 0) {
      return Refuse(absl::StrCat("have a tensor, ", entry.ToString(), ", that does not divide"));
    }
    out_.tensors_.push_back(std::move(entry));
    out_.slots_.push_back(std::make_shared<Tensor>());
    Value value;
    value.value_ = std::shared_ptr<const Tensor>(out_.slots_.back());
    return value;
  }

  // Of a map or list: how many it has, at least a byte each.
  absl::StatusOr<int64_t> Enter() {
    if (++depth_ > kMaxDepth) {
      return Refuse(absl::StrCat("are nested deeper than ", kMaxDepth, " maps and lists"));
    }
    COHORT_ASSIGN_OR_RETURN(const uint64_t count, ReadVarint());
    if (count > bytes_.size()) return Refuse(Short(count, "values"));
    if (count > uint64_t{kMaxValues}) return TooMuch("values", kMaxValues);
    return static_cast<int64_t>(count);
  }

  absl::StatusOr<uint8_t> ReadByte() {
    COHORT_ASSIGN_OR_RETURN(const absl::string_view byte, ReadBytes(1));
    return static_cast<uint8_t>(byte[0]);
  }
  absl::StatusOr<uint64_t> ReadVarint() {
    uint64_t number = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      COHORT_ASSIGN_OR_RETURN(const uint8_t byte, ReadByte());
      const uint64_t bits = byte & 0x7F;
      if (bits << shift >> shift != bits) break;
      number |= bits << shift;
      if (byte < 0x80) return number;
    }
    return Refuse("have a number that is too large");
  }
  absl::StatusOr<absl::string_view> ReadText() {
    COHORT_ASSIGN_OR_RETURN(const uint64_t size, ReadVarint());
    return ReadBytes(size);
  }
  absl::StatusOr<absl::string_view> ReadBytes(uint64_t size) {
    if (size > bytes_.size()) return Refuse(Short(size, "bytes"));
    const absl::string_view read = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return read;
  }

  std::string Short(uint64_t count, absl::string_view what) const {
    return absl::StrCat("should have ", count, " more ", what, ", and end after ", bytes_.size());
  }
  absl::Status Refuse(absl::string_view why) const {
    return absl::InvalidArgumentError(
        absl::StrCat("the entries ", why, " (byte ", all_ - bytes_.size(), " of ", all_, ")"));
  }

  const bool has_tensors_;
  const size_t all_;
  absl::string_view bytes_;  // that are left
  DecodedMap out_;
  int depth_ = 0;
  int64_t values_ = 0;
  int64_t tensor_bytes_ = 0;
};

std::string TensorEntry::ToString() const {
  return absl::StrCat(NameOf(type), " ", FormatShape(shape), on_gpu ? " on a GPU" : "",
                      parts == 1 ? "" : absl::StrCat(" in ", parts, " parts"));
}

absl::StatusOr<EncodedMap> EncodeMap(const TensorMap& map, PartsOf parts) {
  EntryWriter writer(&parts);
  COHORT_RETURN_IF_ERROR(writer.Add(map));
  return std::move(writer).Take();
}

absl::StatusOr<EncodedMap> EncodeMap(const TensorMap& map) {
  return EncodeMap(map, [](WayTo, const Tensor&) { return 1; });
}

absl::StatusOr<DecodedMap> DecodedMap::Parse(absl::string_view entries) {
  EntryReader reader(entries, /*has_tensors=*/true);
  COHORT_RETURN_IF_ERROR(reader.ReadVersion());
  COHORT_ASSIGN_OR_RETURN(TensorMap map, reader.ReadMap());
  COHORT_RETURN_IF_ERROR(reader.ReadEnd());
  reader.SetMap(std::move(map));
  return std::move(reader).Take();
}

absl::StatusOr<std::string> EncodeValue(const Value& value) {
  EntryWriter writer(nullptr);
  COHORT_RETURN_IF_ERROR(writer.Add(value));
  return std::move(writer).Take().entries;
}

absl::StatusOr<Value> DecodeValue(absl::string_view bytes) {
  EntryReader reader(bytes, /*has_tensors=*/false);
  COHORT_RETURN_IF_ERROR(reader.ReadVersion());
  COHORT_ASSIGN_OR_RETURN(Value value, reader.ReadValue());
  COHORT_RETURN_IF_ERROR(reader.ReadEnd());
  return value;
}

}  // namespace cohort::parallel
