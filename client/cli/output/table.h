// A table for people: columns as wide as their widest cell, two blanks apart.
#ifndef COHORT_CLIENT_CLI_OUTPUT_TABLE_H_
#define COHORT_CLIENT_CLI_OUTPUT_TABLE_H_

#include <string>
#include <utility>
#include <vector>

namespace cohort::cli {

// Thread-compatible. Cells are made printable; an empty cell shows as "-". No line ends in a blank.
class Table {
 public:
  // A title that begins with '>' (not shown) marks a right-aligned column.
  explicit Table(std::vector<std::string> titles);

  // Precondition: as many cells as titles.
  void AddRow(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }

  // The titles and all rows, each ended by a newline, each begun by `indent` blanks.
  std::string ToString(int indent = 0) const;

 private:
  std::vector<std::string> titles_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

// Named facts, a line each, their values below each other. Facts without a value are left out.
std::string FormatFacts(const std::vector<std::pair<std::string, std::string>>& facts);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_OUTPUT_TABLE_H_
