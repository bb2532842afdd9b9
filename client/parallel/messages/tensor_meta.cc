#include "client/parallel/messages/tensor_meta.h"

#include "absl/strings/str_cat.h"

namespace cohort::parallel {

std::string ToString(const TensorMeta& meta) {
  return absl::StrCat(NameOf(meta.type), " ", FormatShape(meta.shape),
                      meta.on_device ? " on a GPU" : "");
}

}  // namespace cohort::parallel
