#include "client/cli/output/format.h"

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/rank_set.h"

namespace cohort::cli {
std::string ShortDuration(absl::Duration duration) {
  if (duration == absl::InfiniteDuration()) return "never";
  if (duration <= absl::ZeroDuration()) return "0s";
  if (duration < absl::Milliseconds(1)) {
    return absl::StrCat(absl::ToInt64Microseconds(duration), "us");
  }
  if (duration < absl::Seconds(1)) return absl::StrCat(absl::ToInt64Milliseconds(duration), "ms");
  if (duration < absl::Seconds(10)) {
    return absl::StrFormat("%d.%ds", absl::ToInt64Seconds(duration),
                           absl::ToInt64Milliseconds(duration) % 1000 / 100);
  }
  const int64_t seconds = absl::ToInt64Seconds(duration);
  if (seconds < 60) return absl::StrCat(seconds, "s");
  if (seconds < 3600) return absl::StrCat(seconds / 60, "m", seconds % 60, "s");
  if (seconds < 86400) return absl::StrCat(seconds / 3600, "h", seconds / 60 % 60, "m");
  return absl::StrCat(seconds / 86400, "d", seconds / 3600 % 24, "h");
}

std::string FormatAge(absl::Duration age) {
  if (age == absl::InfiniteDuration()) return "never";
  return absl::StrCat(ShortDuration(age), " ago");
}

std::string FormatAge(const std::optional<absl::Duration>& age) {
  return age.has_value() ? FormatAge(*age) : "never";
}

std::string FormatWithAge(const std::string& what, absl::Duration age) {
  return what.empty() ? "" : absl::StrCat(what, " (", FormatAge(age), ")");
}

std::string FormatBytes(int64_t size_bytes) {
  if (size_bytes < 1024) return absl::StrCat(size_bytes, " B");
  double size = static_cast<double>(size_bytes);
  const char* unit = "B";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (size < 1024) break;
    size /= 1024;
    unit = next;
  }
  return absl::StrFormat("%.1f %s", size, unit);
}

std::string Counted(int64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

std::string FormatMember(const std::optional<int>& rank, absl::string_view member,
                         absl::string_view host) {
  const std::string place = host.empty() ? "" : absl::StrCat(" on ", Printable(host));
  if (!rank.has_value()) return absl::StrCat(Printable(member), place);
  if (member.empty()) return absl::StrCat("rank ", *rank, place);
  return absl::StrCat("rank ", *rank, " (", Printable(member), place, ")");
}

std::string FormatCause(const client::Cause& cause) {
  if (cause.kind == client::CauseKind::kNone) return "";
  std::string result = client::CauseKindName(cause.kind);
  const std::string culprit = FormatMember(cause.rank, cause.member, cause.host);
  if (!culprit.empty()) absl::StrAppend(&result, ", ", culprit);
  if (cause.age > absl::ZeroDuration()) absl::StrAppend(&result, ", ", FormatAge(cause.age));
  if (!cause.detail.empty()) absl::StrAppend(&result, ": ", Printable(cause.detail));
  return result;
}

std::string FormatAway(const client::AwayReport& away) {
  const std::string remaining =
      away.remaining == absl::InfiniteDuration()
          ? "trying on"
          : absl::StrCat("trying for ", ShortDuration(away.remaining), " more");
  return absl::StrCat(Printable(client::ToString(away)), "; ", remaining);
}

std::string FormatProposal(const client::ViewProposal& proposal) {
  std::string result = absl::StrCat("id ", proposal.id, " by ", Printable(proposal.proposer),
                                    " on generation ", proposal.base_generation, ":");
  if (!proposal.remove.empty()) {
    absl::StrAppend(&result, " removes ", NameRanks(proposal.remove), ",");
  }
  if (!proposal.add.empty()) {
    absl::StrAppend(&result, " adds ", Printable(absl::StrJoin(proposal.add, " ")), ",");
  }
  absl::StrAppend(&result, " world size ", proposal.world_size);
  return result;
}

}  // namespace cohort::cli
