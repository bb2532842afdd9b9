#include "client/checkpoint/sinks.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "base/text/printable.h"

namespace cohort::checkpoint {

absl::Status FileSink::Begin(const Layout& /*layout*/, absl::string_view header) {
  return file_->Append(header);
}

absl::Status VerifySink::Begin(const Layout& layout, absl::string_view header) {
  const auto differs = [this](absl::string_view how) {
    return absl::DataLossError(
        absl::StrCat("the received checkpoint differs from ", file_.path(), ": ", how));
  };
  if (layout.file_bytes() != file_.layout().file_bytes()) {
    return differs(absl::StrCat("it has ", layout.file_bytes(), " bytes, the file ",
                                file_.layout().file_bytes()));
  }
  return header == file_.header() ? absl::OkStatus() : differs("the headers differ");
}

absl::Status VerifySink::Take(absl::string_view data) {
  // Small enough to stay in the processor's cache between the read and the comparison.
  constexpr size_t kBytes = size_t{256} << 10;
  buffer_.resize(kBytes);
  while (!data.empty()) {
    const absl::string_view part = data.substr(0, kBytes);
    const absl::Span<char> wanted = absl::MakeSpan(buffer_).subspan(0, part.size());
    COHORT_RETURN_IF_ERROR(file_.Read(offset_, wanted));
    if (std::memcmp(part.data(), wanted.data(), part.size()) != 0) {
      COHORT_RETURN_IF_ERROR(file_.CheckUnchanged());
      return Differs(
          offset_ + (std::mismatch(part.begin(), part.end(), wanted.begin()).first - part.begin()));
    }
    offset_ += static_cast<int64_t>(part.size());
    data.remove_prefix(part.size());
  }
  return absl::OkStatus();
}

absl::Status VerifySink::Differs(int64_t offset) const {
  std::string name = "the end";
  for (const TensorEntry& tensor : file_.layout().tensors) {
    if (tensor.begin <= offset && offset < tensor.end) {
      name = absl::StrCat("tensor '", Printable(tensor.name), "'");
    }
  }
  return absl::DataLossError(absl::StrCat("the received checkpoint differs from ", file_.path(),
                                          ": the first difference is in ", name, " at offset ",
                                          offset));
}

}  // namespace cohort::checkpoint
