#include "client/parallel/tensor_map/entries/entries.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/tensor_map/entries/entry_format.h"

namespace cohort::parallel {
namespace {

class EntryWriter {
 public:
  explicit EntryWriter(const PartsOf* parts) : parts_(parts) { AddByte(kEntriesVersion); }

  absl::Status Add(const TensorMap& map) {
    COHORT_RETURN_IF_ERROR(Enter(map.size()));
    if (depth_ == 1) {
      out_.tensors.reserve(map.size());
      out_.tensor_entries.reserve(map.size());
    }
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
    if (parts_ == nullptr) return Invalid("is a tensor, where plain values alone can go");
    TensorEntry entry = {tensor.type(), tensor.device().is_cuda(), 1, tensor.shape()};
    if (tensor.data() == nullptr && tensor.count() > 0) {
      return Invalid(absl::StrCat(tensor.ToString(), " has no memory"));
    }
    if (tensor.dims() > kMaxDims)
      return Invalid(absl::StrCat("has ", tensor.dims(), " dimensions"));
    COHORT_ASSIGN_OR_RETURN(const int64_t bytes, CheckedBytes(entry.type, entry.shape));
    if ((bytes_ += bytes) > kMaxTensorBytes) return TooMuch("bytes of tensors", kMaxTensorBytes);
    COHORT_ASSIGN_OR_RETURN(entry.parts, (*parts_)([this] { return path(); }, tensor));
    if (entry.parts < 1 || entry.parts > kMaxParts || tensor.count() % entry.parts != 0) {
      return Invalid(absl::StrCat("is ", tensor.ToString(), ", whose ", tensor.count(),
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
      return Invalid(absl::StrCat("is nested deeper than ", kMaxDepth, " maps and lists"));
    }
    AddVarint(count);
    return absl::OkStatus();
  }

  absl::Status Invalid(absl::string_view why) const {
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

absl::StatusOr<std::string> EncodeValue(const Value& value) {
  EntryWriter writer(nullptr);
  COHORT_RETURN_IF_ERROR(writer.Add(value));
  return std::move(writer).Take().entries;
}

}  // namespace cohort::parallel
