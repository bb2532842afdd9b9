#include "client/cli/output/waiting_line.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/rank_set.h"
#include "client/cli/output/format.h"

namespace cohort::cli {
namespace {

constexpr size_t kNamedMembers = 3;

// "rank-3 on host-a, last heard 0.4s ago"
std::string Describe(const client::MissingMember& member) {
  std::string result = Printable(member.member);
  if (!member.host.empty()) absl::StrAppend(&result, " on ", Printable(member.host));
  if (member.last_heard.has_value()) {
    absl::StrAppend(&result, ", last heard ", FormatLastHeard(member));
  }
  return result;
}

std::string Describe(const std::string& what, const client::MissingReport& report) {
  std::string result = absl::StrCat("waiting for ", what, ": ", report.arrived_count, " of ",
                                    report.expected_count, " here");
  if (!report.arrived.empty()) {
    absl::StrAppend(&result, " (", NameRanks(report.arrived), ")");
  }
  absl::StrAppend(&result, ", missing ", NameRanks(report.missing));
  std::string names;
  size_t named = 0;
  for (const client::MissingMember& member : report.details) {
    if (member.member.empty()) continue;
    if (named == kNamedMembers) {
      absl::StrAppend(&names, "; ...");
      break;
    }
    absl::StrAppend(&names, named++ == 0 ? "" : "; ", Describe(member));
  }
  if (!names.empty()) absl::StrAppend(&result, " (", names, ")");
  return result;
}

}  // namespace

WaitingLine::WaitingLine(Printer& printer, std::string what)
    : printer_(printer), what_(std::move(what)), line_(printer) {}

void WaitingLine::Update(const client::MissingReport& report) {
  Show(Describe(what_, report),
       absl::StrCat(FormatRanges(report.arrived), "/", FormatRanges(report.missing)));
}

void WaitingLine::Update(const client::AwayReport& away) {
  Show(absl::StrCat("waiting for ", what_, ": ", FormatAway(away)),
       absl::StrCat("away ", static_cast<int>(away.kind)));
}

void WaitingLine::Show(const std::string& text, const std::string& changed) {
  if (printer_.err_width() > 0) return line_.Show(text);
  if (changed == last_change_) return;
  last_change_ = changed;
  printer_.Remark(text);
}

}  // namespace cohort::cli
