#include "tests/amplification/page.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace cohort::amplification {
namespace {

constexpr char kIntroduction[] =
    "# What a peer costs a daemon\n\n"
    "Each cell is an attack: a message of a protocol in one form, from one peer. The daemon's "
    "memory is the growth of its resident\nmemory at the peak of the attack. Processor time is the "
    "daemon's. The delay is the longest call of another client during the attack; a dash: not measured.\n"
    "[tests/amplification](../tests/amplification/README.md) has the forms and the bounds, which a "
    "test holds in bytes.\n\n";

std::string NameOf(Peer peer) {
  return peer == Peer::kMember ? "a member of a tenant" : "a peer without rights";
}

std::string Bytes(int64_t bytes) {
  if (bytes < 10 << 10) return absl::StrCat(bytes, " B");
  if (bytes < 10 * kMiB) return absl::StrCat(bytes >> 10, " KiB");
  return absl::StrCat(bytes / kMiB, " MiB");
}

double Milliseconds(absl::Duration time) { return absl::ToDoubleMilliseconds(time); }

double Each(double amount, const Cell& cell) {
  return amount / static_cast<double>(std::max<int64_t>(cell.sent_bytes, 1));
}

struct Worst {
  const Row* row = nullptr;
  const Cell* cell = nullptr;
  absl::Duration delay;
  int64_t peak_bytes = 0;
};

std::string WorstTable(const std::vector<Row>& rows) {
  std::map<std::pair<std::string, Peer>, std::map<Form, Worst>> all;
  for (const Row& row : rows) {
    for (const auto& [form, cell] : row.cells) {
      Worst& worst = all[{row.protocol, row.peer}][form];
      worst.delay = std::max(worst.delay, cell.longest_innocent_call);
      if (worst.cell != nullptr && worst.cell->grown_bytes >= cell.grown_bytes) continue;
      worst.row = &row;
      worst.cell = &cell;
    }
  }
  std::string text =
      "## The worst cells\n\nThe message that costs the most memory, for each protocol and form. "
      "The "
      "delay is the longest of all messages in this form.\n\n"
      "| protocol | from | form | message | sent | memory | per byte | processor time | delay |\n"
      "|---|---|---|---|---:|---:|---:|---:|---:|\n";
  for (const auto& [key, forms] : all) {
    for (const auto& [form, worst] : forms) {
      const Cell& cell = *worst.cell;
      absl::StrAppend(
          &text, "| ", key.first, " | ", NameOf(key.second), " | ", amplification::NameOf(form),
          " | ", worst.row->message, " | ", Bytes(cell.sent_bytes), " | ", Bytes(cell.grown_bytes),
          " | ", absl::StrFormat("%.1f", Each(static_cast<double>(cell.grown_bytes), cell)), " | ",
          absl::StrFormat("%.1f ms", Milliseconds(cell.processor_time)), " | ",
          worst.delay > absl::ZeroDuration() ? absl::StrFormat("%.0f ms", Milliseconds(worst.delay))
                                             : "-",
          " |\n");
    }
  }
  return text;
}

std::string AllTables(const std::vector<Row>& rows) {
  std::string text =
      "\n## All cells\n\nMemory for each byte that was sent, then nanoseconds of the daemon's "
      "processor for each. A dash: the protocol has no such form.\n";
  const Row* last = nullptr;
  for (const Row& row : rows) {
    if (last == nullptr || last->protocol != row.protocol || last->peer != row.peer) {
      absl::StrAppend(&text, "\n### ", row.protocol, ", from ", NameOf(row.peer),
                      "\n\n| message |");
      std::string line = "|---|";
      for (const Form form : kForms) {
        absl::StrAppend(&text, " ", amplification::NameOf(form), " |");
        line += "---:|";
      }
      absl::StrAppend(&text, "\n", line, "\n");
    }
    last = &row;
    absl::StrAppend(&text, "| ", row.message, " |");
    for (const Form form : kForms) {
      const auto cell = row.cells.find(form);
      if (cell == row.cells.end()) {
        text += " - |";
        continue;
      }
      absl::StrAppendFormat(
          &text, " %.1f, %.0f |", Each(static_cast<double>(cell->second.grown_bytes), cell->second),
          Each(absl::ToDoubleNanoseconds(cell->second.processor_time), cell->second));
    }
    text += "\n";
  }
  return text;
}

}  // namespace

std::string PageOf(const std::vector<Row>& rows, const std::string& about) {
  return absl::StrCat(kIntroduction, about, "\n\n", WorstTable(rows), AllTables(rows));
}

}  // namespace cohort::amplification
