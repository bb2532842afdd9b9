// Which of the two ways rows should take to their experts.
#ifndef COHORT_CLIENT_PARALLEL_MOE_ROUTING_PATH_COSTS_H_
#define COHORT_CLIENT_PARALLEL_MOE_ROUTING_PATH_COSTS_H_

#include <cstdint>

namespace cohort::parallel {

// Sums over all ranks, on one host, so that all ranks compute the same costs.
struct ExchangeShape {
  int ranks = 1;
  int64_t tokens = 0;             // of all ranks
  int64_t routed_rows = 0;        // once for each token and rank that has any of its experts
  int64_t row_bytes = 0;          // of all that travels with a token to the experts
  int64_t combine_row_bytes = 0;  // and back
};

// The bytes that dispatch and combine read and write, of all ranks together. With W ranks, N
// tokens, R routed rows, D bytes there and C bytes back for a row:
//
//   gathered   each rank copies all rows, and adds up its share of W parts:
//              2 W N D + (W + 1) N C
//   routed     rows are put in order, exchanged, exchanged again, and added up:
//              4 R D + (3 R + N) C
//
// So where D = C, routed is less while tokens go to less than 3/7 of the ranks. R is at most W N.
// Between hosts the rows that leave a rank count, (W - 1) N (D + C) against at most as many
// rows routed: there nothing has to be computed.
double GatheredBytes(const ExchangeShape& shape);
double RoutedBytes(const ExchangeShape& shape);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MOE_ROUTING_PATH_COSTS_H_
