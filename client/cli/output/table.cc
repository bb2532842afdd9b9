#include "client/cli/output/table.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <utility>

#include "absl/strings/string_view.h"
#include "client/cli/output/format.h"

namespace cohort::cli {
namespace {

// Characters of well-formed UTF-8: all bytes but continuations.
size_t Width(absl::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

}  // namespace

Table::Table(std::vector<std::string> titles) : titles_(std::move(titles)) {
  for (std::string& title : titles_) {
    const bool right = !title.empty() && title[0] == '>';
    if (right) title.erase(0, 1);
    right_.push_back(right);
  }
}

void Table::AddRow(std::vector<std::string> cells) {
  assert(cells.size() == titles_.size());
  for (std::string& cell : cells) cell = cell.empty() ? "-" : Printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::ToString(int indent) const {
  std::vector<size_t> widths;
  for (const std::string& title : titles_) widths.push_back(Width(title));
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string result;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    result.append(indent, ' ');
    for (size_t i = 0; i < cells.size(); ++i) {
      const std::string padding(widths[i] - Width(cells[i]), ' ');
      if (i > 0) result += "  ";
      result += right_[i] ? padding + cells[i] : cells[i] + padding;
    }
    result.erase(result.find_last_not_of(' ') + 1);
    result += '\n';
  };
  add_line(titles_);
  for (const auto& row : rows_) add_line(row);
  return result;
}

std::string FormatFacts(const std::vector<std::pair<std::string, std::string>>& facts) {
  size_t width = 0;
  for (const auto& [name, value] : facts) {
    if (!value.empty()) width = std::max(width, Width(name));
  }
  std::string result;
  for (const auto& [name, value] : facts) {
    if (value.empty()) continue;
    result += name + std::string(width - Width(name) + 2, ' ') + Printable(value) + '\n';
  }
  return result;
}

}  // namespace cohort::cli
