#include "base/rank_set_name.h"

#include <algorithm>
#include <cstddef>

#include "base/digest128.h"

namespace cohort {
namespace {

constexpr size_t kMostCharacters = 32;

}  // namespace

std::string NameOf(const RankSet& ranks) {
  std::string name = ranks.ToString();
  std::replace(name.begin(), name.end(), ',', '+');
  if (name.size() <= kMostCharacters) return name;
  Digest128 digest;
  digest.Add(name);
  // No set of ranks is written with an x.
  return "x" + digest.ToString();
}

}  // namespace cohort
