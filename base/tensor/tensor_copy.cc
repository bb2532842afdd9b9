// How elements get from one layout to another.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/tensor/copy_plan.h"
#include "base/tensor/tensor.h"

namespace cohort {
namespace {

template <int64_t kBytes>
void CopyLine(const char* from, int64_t from_step, char* to, int64_t to_step, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(to, from, kBytes);
    from += from_step;
    to += to_step;
  }
}

// Copies pieces of kBytes that are adjacent in one layout and far apart in the other. It copies
// tile by tile through a small buffer, so that each cache line is read and written once as a whole.
template <int64_t kBytes>
void Transpose(const char* from, char* to, const CopyAxis& outer, const CopyAxis& inner) {
  constexpr int64_t kTile = kBytes <= 2 ? 64 : 32;
  alignas(64) char tile[kTile * kTile * kBytes];
  for (int64_t i = 0; i < outer.extent; i += kTile) {
    const int64_t rows = std::min(kTile, outer.extent - i);
    for (int64_t j = 0; j < inner.extent; j += kTile) {
      const int64_t columns = std::min(kTile, inner.extent - j);
      const char* const source = from + i * outer.from + j * inner.from;
      char* const target = to + i * outer.to + j * inner.to;
      for (int64_t column = 0; column < columns; ++column) {
        CopyLine<kBytes>(source + column * inner.from, outer.from, tile + column * kTile * kBytes,
                         kBytes, rows);
      }
      for (int64_t row = 0; row < rows; ++row) {
        CopyLine<kBytes>(tile + row * kBytes, kTile * kBytes, target + row * outer.to, inner.to,
                         columns);
      }
    }
  }
}

template <int64_t kBytes>
void CopyPlane(const char* from, char* to, const CopyAxis& outer, const CopyAxis& inner) {
  if constexpr (kBytes <= 8) {
    const bool crossed = std::abs(outer.from) < std::abs(inner.from);
    if (crossed && outer.extent >= 8) return Transpose<kBytes>(from, to, outer, inner);
  }
  for (int64_t i = 0; i < outer.extent; ++i) {
    CopyLine<kBytes>(from + i * outer.from, inner.from, to + i * outer.to, inner.to, inner.extent);
  }
}

void CopyRuns(const char* from, char* to, const CopyAxis& outer, const CopyAxis& inner,
              int64_t bytes) {
  for (int64_t i = 0; i < outer.extent; ++i) {
    for (int64_t j = 0; j < inner.extent; ++j) {
      std::memcpy(to + i * outer.to + j * inner.to, from + i * outer.from + j * inner.from,
                  static_cast<size_t>(bytes));
    }
  }
}

void CopyTwoAxes(const char* from, char* to, const CopyAxis& outer, const CopyAxis& inner,
                 int64_t bytes) {
  switch (bytes) {
    case 1:
      return CopyPlane<1>(from, to, outer, inner);
    case 2:
      return CopyPlane<2>(from, to, outer, inner);
    case 4:
      return CopyPlane<4>(from, to, outer, inner);
    case 8:
      return CopyPlane<8>(from, to, outer, inner);
    case 16:
      return CopyPlane<16>(from, to, outer, inner);
    case 32:
      return CopyPlane<32>(from, to, outer, inner);
    case 64:
      return CopyPlane<64>(from, to, outer, inner);
    default:
      return CopyRuns(from, to, outer, inner, bytes);
  }
}

// Runs of `bytes` along all axes; the last two at once.
void CopyAlong(const char* from, char* to, const CopyAxis* axes, size_t count, int64_t bytes) {
  constexpr CopyAxis kOnce = {1, 0, 0};
  if (count <= 2) {
    return CopyTwoAxes(from, to, count == 2 ? axes[0] : kOnce, count >= 1 ? axes[count - 1] : kOnce,
                       bytes);
  }
  for (int64_t i = 0; i < axes[0].extent; ++i) {
    CopyAlong(from + i * axes[0].from, to + i * axes[0].to, axes + 1, count - 1, bytes);
  }
}

}  // namespace

absl::Status CopyTensor(const Tensor& from, const Tensor& to) {
  COHORT_RETURN_IF_ERROR(CheckCopy(from, to));
  if (!from.device().is_host() || !to.device().is_host()) {
    return absl::InvalidArgumentError(
        absl::StrCat(from.ToString(), " to ", to.ToString(), ": not by the host's processors"));
  }
  if (from.count() == 0) return absl::OkStatus();
  if (from.data() == to.data() && from.strides() == to.strides()) return absl::OkStatus();
  CopyPlan plan = PlanCopy(from, to);
  CopyAxes& axes = plan.axes;
  // The plane is of the two axes that are fastest in `to` and in `from`.
  if (axes.size() > 2) {
    const auto last = axes.end() - 1;
    const auto fastest = std::min_element(
        axes.begin(), last,
        [](const CopyAxis& a, const CopyAxis& b) { return std::abs(a.from) < std::abs(b.from); });
    std::rotate(fastest, fastest + 1, last);
  }
  CopyAlong(plan.from, plan.to, axes.data(), axes.size(), plan.run);
  return absl::OkStatus();
}

}  // namespace cohort
