#include "client/rendezvous/process_group/object_list.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cohort::client {

ObjectList::ObjectList(const std::vector<std::string>& objects)
    : ObjectList(absl::StrJoin(objects, "")) {
  objects_.reserve(objects.size());
  size_t offset = 0;
  for (const std::string& object : objects) CutOne(static_cast<int64_t>(object.size()), &offset);
}

bool ObjectList::CutOne(int64_t size, size_t* offset) {
  // A negative size is a huge one here.
  if (static_cast<uint64_t>(size) > block_->size() - *offset) return false;
  objects_.emplace_back(block_->data() + *offset, static_cast<size_t>(size));
  *offset += static_cast<size_t>(size);
  return true;
}

absl::StatusOr<ObjectList> ObjectList::Complete(ObjectList list, size_t offset, size_t count) {
  if (list.size() != count || offset != list.block_->size()) {
    return absl::DataLossError(absl::StrCat("the sizes of ", count, " objects do not add up to the ",
                                            list.block_->size(), " bytes that came"));
  }
  return list;
}

}  // namespace cohort::client
