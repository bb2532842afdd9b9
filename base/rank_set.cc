#include "base/rank_set.h"

#include <algorithm>

#include "absl/numeric/bits.h"
#include "absl/strings/str_cat.h"

namespace cohort {
namespace {
constexpr int kBits = 64;
uint64_t Bit(int rank) { return uint64_t{1} << (rank % kBits); }
}  // namespace

RankSet RankSet::All(int world_size) {
  RankSet all;
  all.words_.resize((world_size + kBits - 1) / kBits, ~uint64_t{0});
  if (world_size % kBits != 0) all.words_.back() = Bit(world_size) - 1;
  all.count_ = world_size;
  return all;
}

RankSet RankSet::FromRanges(const std::vector<RankRange>& ranges) {
  RankSet set;
  for (const RankRange& range : ranges) {
    for (int rank = range.first; rank <= range.last; ++rank) set.Add(rank);
  }
  return set;
}

bool RankSet::Add(int rank) {
  const size_t word = rank / kBits;
  if (word >= words_.size()) words_.resize(word + 1, 0);
  if (words_[word] & Bit(rank)) return false;
  words_[word] |= Bit(rank);
  ++count_;
  return true;
}

bool RankSet::Remove(int rank) {
  if (!Contains(rank)) return false;
  words_[rank / kBits] &= ~Bit(rank);
  --count_;
  return true;
}

void RankSet::Clear() {
  words_.clear();
  count_ = 0;
}

bool RankSet::Contains(int rank) const {
  const size_t word = rank / kBits;
  return rank >= 0 && word < words_.size() && (words_[word] & Bit(rank)) != 0;
}

int RankSet::first() const {
  for (size_t i = 0; i < words_.size(); ++i) {
    if (words_[i] != 0) return static_cast<int>(i) * kBits + absl::countr_zero(words_[i]);
  }
  return -1;
}

int RankSet::last() const {
  for (size_t i = words_.size(); i-- > 0;) {
    if (words_[i] != 0)
      return static_cast<int>(i) * kBits + kBits - 1 - absl::countl_zero(words_[i]);
  }
  return -1;
}

int RankSet::CountBelow(int rank) const {
  int below = 0;
  const size_t whole = std::min<size_t>(words_.size(), rank / kBits);
  for (size_t i = 0; i < whole; ++i) below += absl::popcount(words_[i]);
  if (whole < words_.size()) below += absl::popcount(words_[whole] & (Bit(rank) - 1));
  return below;
}

RankSet RankSet::Minus(const RankSet& other) const {
  RankSet left = *this;
  const size_t common = std::min(left.words_.size(), other.words_.size());
  for (size_t i = 0; i < common; ++i) left.words_[i] &= ~other.words_[i];
  left.count_ = 0;
  for (uint64_t word : left.words_) left.count_ += absl::popcount(word);
  return left;
}

std::vector<RankRange> RankSet::ToRanges() const {
  std::vector<RankRange> ranges;
  for (int rank : ToVector()) {
    if (!ranges.empty() && ranges.back().last == rank - 1) {
      ranges.back().last = rank;
    } else {
      ranges.push_back({rank, rank});
    }
  }
  return ranges;
}

std::vector<int> RankSet::ToVector() const {
  std::vector<int> ranks;
  ranks.reserve(count_);
  for (size_t i = 0; i < words_.size(); ++i) {
    for (uint64_t word = words_[i]; word != 0; word &= word - 1) {
      ranks.push_back(static_cast<int>(i) * kBits + absl::countr_zero(word));
    }
  }
  return ranks;
}

std::string RankSet::ToString() const { return FormatRanges(ToRanges()); }

bool operator==(const RankSet& a, const RankSet& b) {
  return a.count_ == b.count_ && a.Minus(b).empty();
}

std::string FormatRanges(const std::vector<RankRange>& ranges) {
  std::string text;
  for (const RankRange& range : ranges) {
    if (!text.empty()) text += ',';
    absl::StrAppend(&text, range.first);
    if (range.last != range.first) absl::StrAppend(&text, "-", range.last);
  }
  return text;
}

std::string NameRanks(const std::vector<RankRange>& ranges) {
  const bool one = ranges.size() == 1 && ranges[0].first == ranges[0].last;
  return absl::StrCat(one ? "rank " : "ranks ", FormatRanges(ranges));
}

}  // namespace cohort
