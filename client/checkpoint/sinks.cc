#include "client/checkpoint/sinks.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::checkpoint {

absl::Status FileSink::Begin(const Layout& /*layout*/, absl::string_view header) {
  return file_->Append(header);
}

absl::Status VerifySink::Begin(const Layout& layout, absl::string_view header) {
  const auto differs = [this](absl::string_view how) {
    return absl::DataLossError(absl::StrCat("what came is not ", file_.path(), ": ", how));
  };
  if (layout.file_bytes() != file_.layout().file_bytes()) {
    return differs(absl::StrCat("it has ", layout.file_bytes(), " bytes, the file ",
                                file_.layout().file_bytes()));
  }
  return header == file_.header() ? absl::OkStatus() : differs("the headers differ");
}

absl::Status VerifySink::Take(absl::string_view data) {
  COHORT_RETURN_IF_ERROR(file_.CheckUnchanged());
  const absl::string_view wanted = file_.data().substr(offset_, data.size());
  if (data == wanted) {
    offset_ += data.size();
    return absl::OkStatus();
  }
  const auto first = std::mismatch(data.begin(), data.end(), wanted.begin(), wanted.end()).first;
  const int64_t at = static_cast<int64_t>(offset_) + (first - data.begin());
  std::string name = "the end";
  for (const TensorEntry& tensor : file_.layout().tensors) {
    if (tensor.begin <= at && at < tensor.end) name = absl::StrCat("tensor '", tensor.name, "'");
  }
  return absl::DataLossError(absl::StrCat("what came is not ", file_.path(), ": it differs in ",
                                          name, ", first at offset ", at));
}

}  // namespace cohort::checkpoint
