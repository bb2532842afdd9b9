#include "client/parallel/tensor_map/tensor_map.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cohort::parallel {
namespace {

constexpr size_t kIndexedFrom = 16;

// Keys may come from another rank, and be long.
std::string Quoted(absl::string_view key) {
  constexpr size_t kShown = 80;
  return absl::StrCat("'", absl::CHexEscape(key.substr(0, kShown)),
                      key.size() > kShown ? "..." : "", "'");
}

}  // namespace

absl::string_view NameOf(ValueKind kind) {
  switch (kind) {
    case ValueKind::kNull:
      return "null";
    case ValueKind::kBool:
      return "a bool";
    case ValueKind::kInt:
      return "a whole number";
    case ValueKind::kDouble:
      return "a floating number";
    case ValueKind::kText:
      return "text";
    case ValueKind::kBytes:
      return "bytes";
    case ValueKind::kList:
      return "a list";
    case ValueKind::kTensor:
      return "a tensor";
    case ValueKind::kMap:
      return "a map";
  }
  return "unknown";
}

Value::Value(Tensor tensor) : value_(std::make_shared<const Tensor>(std::move(tensor))) {}

Value::Value(TensorMap map) : value_(std::make_shared<const TensorMap>(std::move(map))) {}

TensorMap::TensorMap(std::initializer_list<Entry> entries) {
  for (const Entry& entry : entries) Set(entry.key, entry.value);
}

size_t TensorMap::size() const { return entries_.size(); }

void TensorMap::Set(absl::string_view key, Value value) {
  const int64_t at = IndexOf(key);
  if (at >= 0) {
    entries_[static_cast<size_t>(at)].value = std::move(value);
    return;
  }
  entries_.push_back({std::string(key), std::move(value)});
  if (entries_.size() < kIndexedFrom) return;
  for (size_t i = index_.size(); i < entries_.size(); ++i) {
    index_[entries_[i].key] = static_cast<int64_t>(i);
  }
}

const Value* TensorMap::Find(absl::string_view key) const {
  const int64_t at = IndexOf(key);
  return at < 0 ? nullptr : &entries_[static_cast<size_t>(at)].value;
}

int64_t TensorMap::IndexOf(absl::string_view key) const {
  if (!index_.empty()) {
    const auto found = index_.find(key);
    return found == index_.end() ? -1 : found->second;
  }
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].key == key) return static_cast<int64_t>(i);
  }
  return -1;
}

absl::Status TensorMap::Missing(absl::string_view key, const Value* found) const {
  if (found == nullptr) return absl::NotFoundError(absl::StrCat("no key ", Quoted(key)));
  return absl::InvalidArgumentError(
      absl::StrCat("key ", Quoted(key), " holds ", NameOf(found->kind())));
}

std::string FormatPath(const Path& path) {
  return absl::StrJoin(path, "/", [](std::string* out, const std::string& key) {
    absl::StrAppend(out, Quoted(key));
  });
}

}  // namespace cohort::parallel
