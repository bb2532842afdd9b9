#include "client/cli/output/waiting_line.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/rank_set.h"
#include "client/cli/output/format.h"

namespace cohort::cli {
namespace {

constexpr absl::string_view kClearLine = "\r\x1b[K";
constexpr size_t kNamedMembers = 3;

// "rank-3 on host-a, last heard 0.4s ago"
std::string Describe(const client::MissingMember& member) {
  std::string result = Printable(member.member);
  if (!member.host.empty()) absl::StrAppend(&result, " on ", Printable(member.host));
  if (member.last_heard.has_value()) {
    absl::StrAppend(&result, ", last heard ", FormatAge(member.last_heard),
                    member.attached ? " (attached)" : "");
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

// At most `width` bytes, and never half of a character.
std::string Cut(std::string text, size_t width) {
  if (text.size() <= width) return text;
  while (width > 0 && (static_cast<unsigned char>(text[width]) & 0xc0) == 0x80) --width;
  text.resize(width);
  return text;
}

}  // namespace

WaitingLine::WaitingLine(Printer& printer, std::string what)
    : printer_(printer), what_(std::move(what)) {}

WaitingLine::~WaitingLine() {
  if (shown_) printer_.RemarkText(kClearLine);
}

void WaitingLine::Update(const client::MissingReport& report) {
  Show(Describe(what_, report),
       absl::StrCat(FormatRanges(report.arrived), "/", FormatRanges(report.missing)));
}

void WaitingLine::Update(const client::AwayReport& away) {
  Show(absl::StrCat("waiting for ", what_, ": ", FormatAway(away)),
       absl::StrCat("away ", static_cast<int>(away.kind)));
}

void WaitingLine::Show(const std::string& text, const std::string& changed) {
  if (printer_.err_width() > 0) {
    const size_t width = static_cast<size_t>(std::max(printer_.err_width() - 1, 1));
    printer_.RemarkText(absl::StrCat(kClearLine, Cut(text, width)));
    shown_ = true;
    return;
  }
  if (changed == last_change_) return;
  last_change_ = changed;
  printer_.Remark(text);
}

}  // namespace cohort::cli
