// A set of ranks of one group, as a bitmap; written and read as ranges.
#ifndef COHORT_BASE_RANK_SET_H_
#define COHORT_BASE_RANK_SET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"

namespace cohort {

// Ranks first..last, both included.
struct RankRange {
  int first = 0;
  int last = 0;
  friend bool operator==(const RankRange& a, const RankRange& b) {
    return a.first == b.first && a.last == b.last;
  }
};

class RankSet {
 public:
  RankSet() = default;
  // The ranks 0..world_size-1.
  static RankSet All(int world_size);
  // Precondition: 0 <= first <= last in every range.
  static RankSet FromRanges(const std::vector<RankRange>& ranges);

  // Returns whether `rank` (>= 0) was new.
  bool Add(int rank);
  // Returns whether `rank` was in the set.
  bool Remove(int rank);
  void Clear();

  bool Contains(int rank) const;
  int count() const { return count_; }
  bool empty() const { return count_ == 0; }
  // The lowest and the highest rank; -1: the set is empty.
  int first() const;
  int last() const;
  // The number of ranks in the set below `rank`.
  int CountBelow(int rank) const;

  RankSet Minus(const RankSet& other) const;
  std::vector<RankRange> ToRanges() const;
  std::vector<int> ToVector() const;
  // Such as "0,3-7,9".
  std::string ToString() const;

  friend bool operator==(const RankSet& a, const RankSet& b);
  friend bool operator!=(const RankSet& a, const RankSet& b) { return !(a == b); }

 private:
  absl::InlinedVector<uint64_t, 2> words_;
  int count_ = 0;
};

// Such as "0,3-7,9".
std::string FormatRanges(const std::vector<RankRange>& ranges);

// A text such as "rank 3" or "ranks 0,3-7,9".
std::string NameRanks(const std::vector<RankRange>& ranges);

}  // namespace cohort

#endif  // COHORT_BASE_RANK_SET_H_
