#include "client/parallel/tensor_map/tensor_map.h"

#include <algorithm>

#include "absl/hash/hash.h"
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
  if (entries_.size() >= kIndexedFrom) AddToIndex(entries_.size() - 1);
}

void TensorMap::Reserve(size_t entries) { entries_.reserve(entries); }

const Value* TensorMap::Find(absl::string_view key) const {
  const int64_t at = IndexOf(key);
  return at < 0 ? nullptr : &entries_[static_cast<size_t>(at)].value;
}

int64_t TensorMap::IndexOf(absl::string_view key) const {
  if (!index_.empty()) return static_cast<int64_t>(index_[SlotOf(key)]) - 1;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].key == key) return static_cast<int64_t>(i);
  }
  return -1;
}

size_t TensorMap::SlotOf(absl::string_view key) const {
  const size_t mask = index_.size() - 1;
  size_t slot = absl::Hash<absl::string_view>()(key) & mask;
  while (index_[slot] != 0 && entries_[index_[slot] - 1].key != key) slot = (slot + 1) & mask;
  return slot;
}

void TensorMap::AddToIndex(size_t entry) {
  // At most half full; the size is a power of two.
  if (2 * (entry + 1) > index_.size()) {
    index_.assign(std::max(4 * kIndexedFrom, 2 * index_.size()), 0);
    for (size_t i = 0; i < entry; ++i)
      index_[SlotOf(entries_[i].key)] = static_cast<uint32_t>(i + 1);
  }
  index_[SlotOf(entries_[entry].key)] = static_cast<uint32_t>(entry + 1);
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
