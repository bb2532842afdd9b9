// The objects of several ranks, in one block of memory: each of a thousand members gets a thousand
// objects with one allocation.
#ifndef COHORT_CLIENT_RENDEZVOUS_PROCESS_GROUP_OBJECT_LIST_H_
#define COHORT_CLIENT_RENDEZVOUS_PROCESS_GROUP_OBJECT_LIST_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort::client {

// Immutable. Copies share the block, so that a view lives as long as any list that has it.
class ObjectList {
 public:
  using value_type = absl::string_view;
  using const_iterator = std::vector<absl::string_view>::const_iterator;
  using iterator = const_iterator;

  ObjectList() = default;
  // A copy of `objects`.
  explicit ObjectList(const std::vector<std::string>& objects);
  // `block` holds them one after the other; `sizes` has a number for each.
  // DATA_LOSS: the sizes do not add up to the block.
  template <typename Sizes>
  static absl::StatusOr<ObjectList> Cut(std::string block, const Sizes& sizes) {
    ObjectList list(std::move(block));
    list.objects_.reserve(sizes.size());
    size_t offset = 0;
    for (const int64_t size : sizes) {
      if (!list.CutOne(size, &offset)) break;
    }
    return Complete(std::move(list), offset, static_cast<size_t>(sizes.size()));
  }

  size_t size() const { return objects_.size(); }
  bool empty() const { return objects_.empty(); }
  absl::string_view operator[](size_t i) const { return objects_[i]; }
  const_iterator begin() const { return objects_.begin(); }
  const_iterator end() const { return objects_.end(); }

  std::vector<std::string> ToStrings() const { return {objects_.begin(), objects_.end()}; }

 private:
  explicit ObjectList(std::string block)
      : block_(std::make_shared<const std::string>(std::move(block))) {}
  bool CutOne(int64_t size, size_t* offset);
  static absl::StatusOr<ObjectList> Complete(ObjectList list, size_t offset, size_t count);

  std::shared_ptr<const std::string> block_;
  std::vector<absl::string_view> objects_;  // into block_
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_PROCESS_GROUP_OBJECT_LIST_H_
