#include "worker/group/collectives/mismatch_text.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "worker/communicator/mismatch.h"

namespace cohort::worker {
namespace {

// The most bytes of a call's text that a rank sends, and that an error quotes. A call with the
// sizes of many ranks has a long text.
constexpr size_t kTextBytes = 4095;
constexpr size_t kSentBytes = kTextBytes + 1;  // with the form of the call
constexpr size_t kQuoted = 600;

// No other call has this tag.
constexpr uint32_t kExplainTag = 0x3A77B0C5;

// Returns the text, or if it is too long the part around `at`.
std::string Quote(absl::string_view text, size_t at) {
  if (text.size() <= kQuoted) return std::string(text);
  const size_t begin = at < kQuoted / 2 ? 0 : std::min(at - kQuoted / 2, text.size() - kQuoted);
  return absl::StrCat(begin > 0 ? "..." : "", text.substr(begin, kQuoted),
                      begin + kQuoted < text.size() ? "..." : "");
}

}  // namespace

absl::Status ExplainMismatch(Communicator& communicator, const std::string& own,
                             const absl::Status& mismatch, Instant deadline, CallForm form,
                             bool* mixed) {
  std::string own_text(kSentBytes, '\0');
  std::memcpy(&own_text[0], own.data(), std::min(own.size(), kTextBytes));
  own_text[kTextBytes] = static_cast<char>(form);
  const auto ranks = static_cast<size_t>(communicator.size());
  std::string all(ranks * kSentBytes, '\0');
  FlatCall call;
  call.collective = Collective::kAllGather;
  call.type = DataType::kU8;
  call.count = static_cast<int64_t>(kSentBytes);
  call.tag = kExplainTag;
  const absl::Status status = communicator.Run(call, own_text.data(), &all[0], deadline);
  if (!status.ok()) return mismatch;
  if (mixed != nullptr) {
    size_t equal = 0, ragged = 0;
    for (size_t rank = 0; rank < ranks; ++rank) {
      const auto other = static_cast<CallForm>(all[rank * kSentBytes + kTextBytes]);
      if (other == CallForm::kAllToAll) ++equal;
      if (other == CallForm::kAllToAllV) ++ragged;
    }
    *mixed = equal > 0 && ragged > 0 && equal + ragged == ranks;
  }
  const auto text_of = [&](size_t rank) {
    const absl::string_view text = absl::string_view(all).substr(rank * kSentBytes, kTextBytes);
    return text.substr(0, text.find('\0'));
  };
  const absl::string_view first = text_of(0);
  for (size_t rank = 1; rank < ranks; ++rank) {
    const absl::string_view other = text_of(rank);
    if (other == first) continue;
    const auto ends = std::mismatch(first.begin(), first.end(), other.begin(), other.end());
    const auto at = static_cast<size_t>(ends.first - first.begin());
    return MismatchError(Quote(first, at), static_cast<int>(rank), Quote(other, at));
  }
  return mismatch;
}

}  // namespace cohort::worker
