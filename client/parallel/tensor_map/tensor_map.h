// Named values and tensors that travel together.
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_MAP_TENSOR_MAP_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_MAP_TENSOR_MAP_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/tensor/tensor.h"

namespace cohort::parallel {

class TensorMap;
class Value;

// Bytes that are not text.
struct Bytes {
  std::string data;

  friend bool operator==(const Bytes& a, const Bytes& b) { return a.data == b.data; }
};

using List = std::vector<Value>;

enum class ValueKind { kNull, kBool, kInt, kDouble, kText, kBytes, kList, kTensor, kMap };

// "null", "a number", "a tensor"...
absl::string_view NameOf(ValueKind kind);

// Null, a plain value, a tensor, or a list or map of values. A value from another rank is one of
// these kinds; nothing in it is executed. Copies share tensors and maps, which cannot be changed
// through a value; lists are copied.
class Value {
 public:
  Value() = default;  // null
  template <typename T, std::enable_if_t<std::is_same_v<T, bool>, int> = 0>
  Value(T value) : value_(value) {}  // values convert implicitly
  template <typename T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool> &&
                                             (std::is_signed_v<T> || sizeof(T) < 8),
                                         int> = 0>
  Value(T value) : value_(int64_t{value}) {}                    // NOLINT
  Value(double value) : value_(value) {}                        // NOLINT
  Value(const char* text) : value_(std::string(text)) {}        // NOLINT
  Value(absl::string_view text) : value_(std::string(text)) {}  // NOLINT
  Value(std::string text) : value_(std::move(text)) {}          // NOLINT
  Value(Bytes bytes) : value_(std::move(bytes)) {}              // NOLINT
  Value(List list) : value_(std::move(list)) {}                 // NOLINT
  Value(Tensor tensor);                                         // NOLINT
  Value(TensorMap map);                                         // NOLINT

  ValueKind kind() const { return static_cast<ValueKind>(value_.index()); }
  bool is_null() const { return kind() == ValueKind::kNull; }

  // Returns the value as a T; null if it has another kind. T is bool, int64_t, double, std::string
  // (text), Bytes, List, Tensor or TensorMap.
  template <typename T>
  const T* As() const {
    if constexpr (std::is_same_v<T, Tensor> || std::is_same_v<T, TensorMap>) {
      const auto* const shared = std::get_if<std::shared_ptr<const T>>(&value_);
      return shared == nullptr ? nullptr : shared->get();
    } else {
      return std::get_if<T>(&value_);
    }
  }

 private:
  friend class EntryReader;  // fills in tensors that have not come yet

  // In the order of ValueKind.
  std::variant<std::monostate, bool, int64_t, double, std::string, Bytes, List,
               std::shared_ptr<const Tensor>, std::shared_ptr<const TensorMap>>
      value_;
};

// Keys with a value each, in the order in which the keys were first set. A key is any text.
class TensorMap {
 public:
  struct Entry;
  using Entries = std::vector<Entry>;

  TensorMap() = default;
  // If a key occurs twice, its last value stays, in the place of the first.
  TensorMap(std::initializer_list<Entry> entries);

  // Adds the key, or replaces its value.
  void Set(absl::string_view key, Value value);
  // Makes room for so many entries, so that Set does not grow the map.
  void Reserve(size_t entries);
  // Null if there is no such key. The pointer is valid until the map is changed.
  const Value* Find(absl::string_view key) const;
  // Errors: NOT_FOUND (no such key); INVALID_ARGUMENT (names the key and the kind of its value).
  template <typename T>
  absl::StatusOr<T> Get(absl::string_view key) const;

  const Entries& entries() const { return entries_; }
  size_t size() const;
  bool empty() const { return entries_.empty(); }
  Entries::const_iterator begin() const { return entries_.begin(); }
  Entries::const_iterator end() const { return entries_.end(); }

 private:
  absl::Status Missing(absl::string_view key, const Value* found) const;
  // The index in entries_; -1: no such key.
  int64_t IndexOf(absl::string_view key) const;
  // The slot of the key in index_, or the free slot for it. Precondition: index_ has free slots.
  size_t SlotOf(absl::string_view key) const;
  void AddToIndex(size_t entry);

  Entries entries_;
  // A hash table from keys to 1 + their index in entries_; 0: a free slot. It is used once a scan
  // of the entries would take longer. It does not copy the keys.
  std::vector<uint32_t> index_;
};

struct TensorMap::Entry {
  std::string key;
  Value value;
};

// The path to a value: keys, and for lists an index in decimal digits. No character of a key has a
// special meaning, so different paths are different values of this type.
using Path = std::vector<std::string>;

// As text for errors: 'layers'/'0'/'weight'.
std::string FormatPath(const Path& path);
// Builds a path when the callee needs it.
using WayTo = absl::FunctionRef<Path()>;

template <typename T>
absl::StatusOr<T> TensorMap::Get(absl::string_view key) const {
  const Value* const found = Find(key);
  const T* const value = found == nullptr ? nullptr : found->As<T>();
  if (value == nullptr) return Missing(key, found);
  return *value;
}

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_MAP_TENSOR_MAP_H_
