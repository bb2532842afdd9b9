// Parses received entries into a map.
#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/parallel/tensor_map/entries/entries.h"
#include "client/parallel/tensor_map/entries/entry_format.h"

namespace cohort::parallel {
namespace {

// The first allocation has room for so many items, because their count may be wrong.
constexpr size_t kReserved = 256;

}  // namespace

// Parses untrusted bytes: it allocates at most a small multiple of them. Reading methods return
// whether they succeeded; status() has the error.
class EntryReader {
 public:
  EntryReader(absl::string_view bytes, bool has_tensors)
      : has_tensors_(has_tensors), all_(bytes.size()), bytes_(bytes) {}

  const absl::Status& status() const { return status_; }

  bool ReadVersion() {
    if (bytes_.size() > static_cast<size_t>(kMaxEntryBytes)) {
      return Fail(TooMuch("bytes of entries", kMaxEntryBytes));
    }
    uint8_t version = 0;
    if (!ReadByte(&version)) return false;
    if (version == kEntriesVersion) return true;
    return Invalid(
        absl::StrCat("are of version ", version, ", and this rank knows ", kEntriesVersion));
  }

  bool ReadMap(TensorMap* map) {
    size_t count = 0;
    if (!Enter(&count)) return false;
    map->Reserve(std::min(count, kReserved));
    for (size_t i = 0; i < count; ++i) {
      absl::string_view key;
      Value value;
      if (!ReadText(&key) || !ReadValue(&value)) return false;
      map->Set(key, std::move(value));
      if (map->size() != i + 1) return Invalid("have a key twice");
    }
    --depth_;
    return true;
  }

  // Precondition: the value is null.
  bool ReadValue(Value* value) {
    if (++values_ > kMaxValues) return Fail(TooMuch("values", kMaxValues));
    uint8_t kind = 0;
    if (!ReadByte(&kind)) return false;
    switch (static_cast<ValueKind>(kind)) {
      case ValueKind::kNull:
        return true;
      case ValueKind::kBool: {
        uint8_t byte = 0;
        if (!ReadByte(&byte)) return false;
        if (byte > 1) return Invalid("have a bool that is neither 0 nor 1");
        value->value_ = byte == 1;
        return true;
      }
      case ValueKind::kInt: {
        uint64_t zigzag = 0;
        if (!ReadVarint(&zigzag)) return false;
        const uint64_t bits = zigzag >> 1 ^ ((zigzag & 1) != 0 ? ~uint64_t{0} : 0);
        value->value_ = static_cast<int64_t>(bits);
        return true;
      }
      case ValueKind::kDouble: {
        absl::string_view bytes;
        if (!ReadBytes(sizeof(double), &bytes)) return false;
        uint64_t bits = 0;
        for (size_t i = 0; i < sizeof(bits); ++i) {
          bits |= uint64_t{static_cast<uint8_t>(bytes[i])} << 8 * i;
        }
        double number = 0;
        std::memcpy(&number, &bits, sizeof(number));
        value->value_ = number;
        return true;
      }
      case ValueKind::kText: {
        absl::string_view text;
        if (!ReadText(&text)) return false;
        value->value_ = std::string(text);
        return true;
      }
      case ValueKind::kBytes: {
        absl::string_view text;
        if (!ReadText(&text)) return false;
        value->value_ = Bytes{std::string(text)};
        return true;
      }
      case ValueKind::kList:
        return ReadList(value);
      case ValueKind::kTensor:
        return ReadTensor(value);
      case ValueKind::kMap: {
        auto map = std::make_shared<TensorMap>();
        if (!ReadMap(map.get())) return false;
        value->value_ = std::shared_ptr<const TensorMap>(std::move(map));
        return true;
      }
    }
    return Invalid(absl::StrCat("have a value of unknown kind ", kind));
  }

  bool ReadEnd() {
    if (bytes_.empty()) return true;
    return Invalid(absl::StrCat("have ", bytes_.size(), " bytes behind their end"));
  }

  TensorMap* map() { return &out_.map_; }
  DecodedMap Take() && { return std::move(out_); }

 private:
  bool ReadList(Value* value) {
    size_t count = 0;
    if (!Enter(&count)) return false;
    List list;
    list.reserve(std::min(count, kReserved));
    for (size_t i = 0; i < count; ++i) {
      if (!ReadValue(&list.emplace_back())) return false;
    }
    --depth_;
    value->value_ = std::move(list);
    return true;
  }

  bool ReadTensor(Value* value) {
    if (!has_tensors_) return Invalid("have a tensor, where plain values alone can be");
    TensorEntry& entry = out_.tensors_.emplace_back();
    entry.shape.clear();
    uint8_t type = 0;
    if (!ReadByte(&type)) return false;
    if (!IsDataType(type)) return Invalid(absl::StrCat("have a tensor of type ", type));
    entry.type = static_cast<DataType>(type);
    uint8_t place = 0;
    if (!ReadByte(&place)) return false;
    if (place > 1) return Invalid(absl::StrCat("have a tensor in place ", place));
    entry.on_gpu = place == 1;
    uint64_t parts = 0;
    if (!ReadVarint(&parts)) return false;
    if (parts < 1 || parts > kMaxParts) return Invalid(absl::StrCat("have ", parts, " parts"));
    entry.parts = static_cast<int>(parts);
    uint64_t dims = 0;
    if (!ReadVarint(&dims)) return false;
    if (dims > kMaxDims) return Invalid(absl::StrCat("have a tensor of ", dims, " dimensions"));
    for (uint64_t i = 0; i < dims; ++i) {
      uint64_t extent = 0;
      if (!ReadVarint(&extent)) return false;
      if (extent > uint64_t{std::numeric_limits<int64_t>::max()}) {
        return Invalid(absl::StrCat("have an extent of ", extent));
      }
      entry.shape.push_back(static_cast<int64_t>(extent));
    }
    const absl::StatusOr<int64_t> bytes = CheckedBytes(entry.type, entry.shape);
    if (!bytes.ok()) return Fail(bytes.status());
    if ((tensor_bytes_ += *bytes) > kMaxTensorBytes) {
      return Fail(TooMuch("bytes of tensors", kMaxTensorBytes));
    }
    if (*bytes / SizeOf(entry.type) % entry.parts != 0) {
      return Invalid(absl::StrCat("have a tensor, ", entry.ToString(), ", that does not divide"));
    }
    auto& slot = out_.slots_.emplace_back(std::make_shared<Tensor>());
    value->value_ = std::shared_ptr<const Tensor>(slot);
    return true;
  }

  // Enters a map or list and reads its count of values, of at least a byte each.
  bool Enter(size_t* count) {
    if (++depth_ > kMaxDepth) {
      return Invalid(absl::StrCat("are nested deeper than ", kMaxDepth, " maps and lists"));
    }
    uint64_t claimed = 0;
    if (!ReadVarint(&claimed)) return false;
    if (claimed > bytes_.size()) return Invalid(Short(claimed, "values"));
    if (claimed > uint64_t{kMaxValues}) return Fail(TooMuch("values", kMaxValues));
    *count = claimed;
    return true;
  }

  bool ReadByte(uint8_t* byte) {
    if (bytes_.empty()) return Invalid(Short(1, "bytes"));
    *byte = static_cast<uint8_t>(bytes_[0]);
    bytes_.remove_prefix(1);
    return true;
  }
  bool ReadVarint(uint64_t* number) {
    *number = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      uint8_t byte = 0;
      if (!ReadByte(&byte)) return false;
      const uint64_t bits = byte & 0x7F;
      if (bits << shift >> shift != bits) break;
      *number |= bits << shift;
      if (byte < 0x80) return true;
    }
    return Invalid("have a number that is too large");
  }
  bool ReadText(absl::string_view* text) {
    uint64_t size = 0;
    return ReadVarint(&size) && ReadBytes(size, text);
  }
  bool ReadBytes(uint64_t size, absl::string_view* read) {
    if (size > bytes_.size()) return Invalid(Short(size, "bytes"));
    *read = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return true;
  }

  std::string Short(uint64_t count, absl::string_view what) const {
    return absl::StrCat("should have ", count, " more ", what, ", and end after ", bytes_.size());
  }
  bool Invalid(absl::string_view why) {
    return Fail(absl::InvalidArgumentError(
        absl::StrCat("the entries ", why, " (byte ", all_ - bytes_.size(), " of ", all_, ")")));
  }
  bool Fail(absl::Status why) {
    status_ = std::move(why);
    return false;
  }

  const bool has_tensors_;
  const size_t all_;
  absl::string_view bytes_;  // the rest of the bytes
  absl::Status status_;
  DecodedMap out_;
  int depth_ = 0;
  int64_t values_ = 0;
  int64_t tensor_bytes_ = 0;
};

absl::StatusOr<DecodedMap> DecodedMap::Parse(absl::string_view entries) {
  EntryReader reader(entries, /*has_tensors=*/true);
  if (!reader.ReadVersion() || !reader.ReadMap(reader.map()) || !reader.ReadEnd()) {
    return reader.status();
  }
  return std::move(reader).Take();
}

absl::StatusOr<Value> DecodeValue(absl::string_view bytes) {
  EntryReader reader(bytes, /*has_tensors=*/false);
  Value value;
  if (!reader.ReadVersion() || !reader.ReadValue(&value) || !reader.ReadEnd()) {
    return reader.status();
  }
  return value;
}

}  // namespace cohort::parallel
