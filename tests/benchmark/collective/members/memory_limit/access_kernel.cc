// Compiled once for each kind of vector unit; which one runs is chosen at run time (Highway).
#include "tests/benchmark/collective/members/memory_limit/access_kernel.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/benchmark/collective/members/memory_limit/access_kernel.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace cohort::benchmark {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;

template <bool streaming>
HWY_INLINE void StoreTo(hn::Vec<Tag> lanes, float* to) {
  if (streaming) {
    hn::Stream(lanes, Tag(), to);
  } else {
    hn::StoreU(lanes, Tag(), to);
  }
}

// The numbers of sources and destinations are compiled in; -1: as many as the access has.
template <int source_count, int destination_count, bool streaming>
void SumInto(const Access& access) {
  const float* const* sources = access.sources.data();
  float* const* destinations = access.destinations.data();
  const size_t source_end = source_count < 0 ? access.sources.size() : source_count;
  const size_t destination_end =
      destination_count < 0 ? access.destinations.size() : destination_count;
  const Tag tag;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(tag));
  int64_t i = 0;
  for (; i + 4 * lanes <= access.elements; i += 4 * lanes) {
    const float* first = sources[0] + i;
    auto a = hn::LoadU(tag, first);
    auto b = hn::LoadU(tag, first + lanes);
    auto c = hn::LoadU(tag, first + 2 * lanes);
    auto d = hn::LoadU(tag, first + 3 * lanes);
    for (size_t s = 1; s < source_end; ++s) {
      const float* from = sources[s] + i;
      a = hn::Add(a, hn::LoadU(tag, from));
      b = hn::Add(b, hn::LoadU(tag, from + lanes));
      c = hn::Add(c, hn::LoadU(tag, from + 2 * lanes));
      d = hn::Add(d, hn::LoadU(tag, from + 3 * lanes));
    }
    for (size_t t = 0; t < destination_end; ++t) {
      float* to = destinations[t] + i;
      StoreTo<streaming>(a, to);
      StoreTo<streaming>(b, to + lanes);
      StoreTo<streaming>(c, to + 2 * lanes);
      StoreTo<streaming>(d, to + 3 * lanes);
    }
  }
  for (; i < access.elements; ++i) {
    float sum = sources[0][i];
    for (size_t s = 1; s < source_end; ++s) sum += sources[s][i];
    for (size_t t = 0; t < destination_end; ++t) destinations[t][i] = sum;
  }
}

template <bool streaming>
void SumIntoAny(const Access& access) {
  const size_t sources = access.sources.size();
  const size_t destinations = access.destinations.size();
  if (sources == 1 && destinations == 1) return SumInto<1, 1, streaming>(access);
  if (sources == 1 && destinations == 2) return SumInto<1, 2, streaming>(access);
  if (sources == 1 && destinations == 4) return SumInto<1, 4, streaming>(access);
  if (sources == 2 && destinations == 1) return SumInto<2, 1, streaming>(access);
  if (sources == 2 && destinations == 2) return SumInto<2, 2, streaming>(access);
  if (sources == 4 && destinations == 1) return SumInto<4, 1, streaming>(access);
  if (sources == 4 && destinations == 4) return SumInto<4, 4, streaming>(access);
  SumInto<-1, -1, streaming>(access);
}

void SumIntoCached(const Access& access) { SumIntoAny<false>(access); }

void SumIntoStreaming(const Access& access) {
  SumIntoAny<true>(access);
  hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace cohort::benchmark
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cohort::benchmark {
namespace {

HWY_EXPORT(SumIntoCached);
HWY_EXPORT(SumIntoStreaming);

bool IsAligned(const float* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 64 == 0; }

}  // namespace

void Perform(const Access& access, Stores stores) {
  if (access.elements == 0 || access.sources.empty()) return;
  if (stores == Stores::kMemcpy && access.sources.size() == 1) {
    for (float* to : access.destinations) {
      std::memcpy(to, access.sources[0], access.elements * sizeof(float));
    }
  } else if (stores == Stores::kStreaming &&
             std::all_of(access.destinations.begin(), access.destinations.end(), IsAligned)) {
    HWY_DYNAMIC_DISPATCH(SumIntoStreaming)(access);
  } else {
    HWY_DYNAMIC_DISPATCH(SumIntoCached)(access);
  }
}

}  // namespace cohort::benchmark
#endif  // HWY_ONCE
