#include "client/parallel/moe/routing/path_costs.h"

namespace cohort::parallel {

double GatheredBytes(const ExchangeShape& shape) {
  const auto ranks = static_cast<double>(shape.ranks);
  const auto tokens = static_cast<double>(shape.tokens);
  const auto there = static_cast<double>(shape.row_bytes);
  const auto back = static_cast<double>(shape.combine_row_bytes);
  return 2 * ranks * tokens * there + (ranks + 1) * tokens * back;
}

double RoutedBytes(const ExchangeShape& shape) {
  const auto tokens = static_cast<double>(shape.tokens);
  const auto rows = static_cast<double>(shape.routed_rows);
  const auto there = static_cast<double>(shape.row_bytes);
  const auto back = static_cast<double>(shape.combine_row_bytes);
  return 4 * rows * there + (3 * rows + tokens) * back;
}

}  // namespace cohort::parallel
