// Compiled once for each kind of vector unit; which one runs is chosen at run time (Highway).
#include "worker/communicator/host/reduce_kernel.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/communicator/host/reduce_kernel.cc"
#include "hwy/foreach_target.h"
// Behind foreach_target.h.
#include "hwy/highway.h"
#include "worker/communicator/host/reduce_scalar.h"

HWY_BEFORE_NAMESPACE();
namespace cohort::worker {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// --- How elements become lanes, and lanes elements.

template <typename T>
struct PlainLanes {
  using Element = T;
  using Tag = hn::ScalableTag<T>;
  HWY_INLINE hn::Vec<Tag> Load(Tag tag, const T* from) const { return hn::LoadU(tag, from); }
  HWY_INLINE void Store(Tag tag, hn::Vec<Tag> lanes, T* to) const { hn::StoreU(lanes, tag, to); }
};

struct F16Lanes {
  using Element = hwy::float16_t;
  using Tag = hn::ScalableTag<float>;
  using Half = hn::Rebind<hwy::float16_t, Tag>;
  HWY_INLINE hn::Vec<Tag> Load(Tag tag, const Element* from) const {
    return hn::PromoteTo(tag, hn::LoadU(Half(), from));
  }
  HWY_INLINE void Store(Tag, hn::Vec<Tag> lanes, Element* to) const {
    hn::StoreU(hn::DemoteTo(Half(), lanes), Half(), to);
  }
};

// Highway's own conversion to this type cuts; this one rounds to nearest, ties to even.
struct BF16Lanes {
  using Element = uint16_t;
  using Tag = hn::ScalableTag<float>;
  using Wide = hn::RebindToUnsigned<Tag>;
  using Signed = hn::RebindToSigned<Tag>;
  using Half = hn::Rebind<uint16_t, Tag>;
  HWY_INLINE hn::Vec<Tag> Load(Tag tag, const Element* from) const {
    return hn::BitCast(tag, hn::ShiftLeft<16>(hn::PromoteTo(Wide(), hn::LoadU(Half(), from))));
  }
  HWY_INLINE void Store(Tag, hn::Vec<Tag> lanes, Element* to) const {
    const Wide wide;
    const auto bits = hn::BitCast(wide, lanes);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(wide, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, odd), hn::Set(wide, 0x7FFF)));
    const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(wide, 0x8000));
    const auto nan = hn::Or(sign, hn::Set(wide, 0x7FC0));
    const auto result = hn::IfThenElse(hn::RebindMask(wide, hn::IsNaN(lanes)), nan, rounded);
    hn::StoreU(hn::DemoteTo(Half(), hn::BitCast(Signed(), result)), Half(), to);
  }
};

// --- What is done with two lanes.

struct Sum {
  template <typename V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};
struct Product {
  template <typename V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Mul(a, b);
  }
};
template <typename V>
HWY_INLINE V NanOf(V a, V b, V otherwise) {
  if constexpr (std::is_floating_point_v<hn::TFromV<V>>) {
    return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, otherwise));
  } else {
    return otherwise;
  }
}
struct Minimum {
  template <typename V>
  HWY_INLINE V operator()(V a, V b) const {
    return NanOf(a, b, hn::Min(a, b));
  }
};
struct Maximum {
  template <typename V>
  HWY_INLINE V operator()(V a, V b) const {
    return NanOf(a, b, hn::Max(a, b));
  }
};
struct BitAnd {
  template <typename V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::And(a, b);
  }
};
struct BitOr {
  template <typename V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Or(a, b);
  }
};
struct BitXor {
  template <typename V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Xor(a, b);
  }
};

// --- What is done with each lane before, and at the end.

struct Nothing {
  template <typename Tag>
  HWY_INLINE hn::Vec<Tag> operator()(Tag, hn::Vec<Tag> lanes) const {
    return lanes;
  }
};
struct Times {
  double factor;
  template <typename Tag>
  HWY_INLINE hn::Vec<Tag> operator()(Tag tag, hn::Vec<Tag> lanes) const {
    return hn::Mul(lanes, hn::Set(tag, static_cast<hn::TFromD<Tag>>(factor)));
  }
};
struct Over {
  double divisor;
  template <typename Tag>
  HWY_INLINE hn::Vec<Tag> operator()(Tag tag, hn::Vec<Tag> lanes) const {
    return hn::Div(lanes, hn::Set(tag, static_cast<hn::TFromD<Tag>>(divisor)));
  }
};

// --- All together.

template <typename Lanes, typename Op, typename First, typename Last>
void ReduceLanes(const Operands& operands, const Op& op, const First& first, const Last& last) {
  using Element = typename Lanes::Element;
  const typename Lanes::Tag tag;
  const Lanes lanes;
  const int64_t step = static_cast<int64_t>(hn::Lanes(tag));
  const auto input = [&](size_t k, int64_t at)
                         HWY_ATTR { return static_cast<const Element*>(operands.inputs[k]) + at; };
  const auto output = [&](size_t k, int64_t at)
                          HWY_ATTR { return static_cast<Element*>(operands.outputs[k]) + at; };
  int64_t at = 0;
  for (; at + step <= operands.count; at += step) {
    auto value = first(tag, lanes.Load(tag, input(0, at)));
    for (size_t k = 1; k < operands.inputs.size(); ++k) {
      value = op(value, first(tag, lanes.Load(tag, input(k, at))));
    }
    value = last(tag, value);
    for (size_t k = 0; k < operands.outputs.size(); ++k) lanes.Store(tag, value, output(k, at));
  }
  if (at == operands.count) return;
  // The rest, by way of a whole vector.
  HWY_ALIGN Element rest[hn::MaxLanes(typename Lanes::Tag())] = {};
  const size_t bytes = static_cast<size_t>(operands.count - at) * sizeof(Element);
  std::memcpy(rest, input(0, at), bytes);
  auto value = first(tag, lanes.Load(tag, rest));
  for (size_t k = 1; k < operands.inputs.size(); ++k) {
    std::memcpy(rest, input(k, at), bytes);
    value = op(value, first(tag, lanes.Load(tag, rest)));
  }
  lanes.Store(tag, last(tag, value), rest);
  for (size_t k = 0; k < operands.outputs.size(); ++k) std::memcpy(output(k, at), rest, bytes);
}

template <typename Lanes>
bool ReduceFloats(const Operands& operands, const Reduction& reduction) {
  switch (reduction.op) {
    case ReduceOp::kSum:
      ReduceLanes<Lanes>(operands, Sum(), Nothing(), Nothing());
      return true;
    case ReduceOp::kProd:
      ReduceLanes<Lanes>(operands, Product(), Nothing(), Nothing());
      return true;
    case ReduceOp::kMin:
      ReduceLanes<Lanes>(operands, Minimum(), Nothing(), Nothing());
      return true;
    case ReduceOp::kMax:
      ReduceLanes<Lanes>(operands, Maximum(), Nothing(), Nothing());
      return true;
    case ReduceOp::kAvg:
      ReduceLanes<Lanes>(operands, Sum(), Nothing(),
                         Over{static_cast<double>(operands.inputs.size())});
      return true;
    case ReduceOp::kPreMulSum:
      ReduceLanes<Lanes>(operands, Sum(), Times{reduction.scale}, Nothing());
      return true;
    default:
      return false;
  }
}

// Not what few machines have: products of all sizes, and division.
template <typename T>
bool ReduceIntegers(const Operands& operands, ReduceOp op) {
  using Lanes = PlainLanes<T>;
  switch (op) {
    case ReduceOp::kSum:
      ReduceLanes<Lanes>(operands, Sum(), Nothing(), Nothing());
      return true;
    case ReduceOp::kMin:
      ReduceLanes<Lanes>(operands, Minimum(), Nothing(), Nothing());
      return true;
    case ReduceOp::kMax:
      ReduceLanes<Lanes>(operands, Maximum(), Nothing(), Nothing());
      return true;
    case ReduceOp::kBitAnd:
      ReduceLanes<Lanes>(operands, BitAnd(), Nothing(), Nothing());
      return true;
    case ReduceOp::kBitOr:
      ReduceLanes<Lanes>(operands, BitOr(), Nothing(), Nothing());
      return true;
    case ReduceOp::kBitXor:
      ReduceLanes<Lanes>(operands, BitXor(), Nothing(), Nothing());
      return true;
    default:
      return false;
  }
}

// False: not done here.
bool ReduceVectors(DataType type, const Reduction& reduction, const Operands& operands) {
  switch (type) {
    case DataType::kF32:
      return ReduceFloats<PlainLanes<float>>(operands, reduction);
#if HWY_HAVE_FLOAT64
    case DataType::kF64:
      return ReduceFloats<PlainLanes<double>>(operands, reduction);
#endif
// Where the machine has no instruction for it, Highway's conversion to this type does not round.
#if HWY_TARGET != HWY_SSSE3 && HWY_TARGET != HWY_SSE4 && HWY_TARGET != HWY_EMU128 && \
    HWY_TARGET != HWY_SCALAR
    case DataType::kF16:
      return ReduceFloats<F16Lanes>(operands, reduction);
#endif
    case DataType::kBF16:
      return ReduceFloats<BF16Lanes>(operands, reduction);
    case DataType::kI8:
      return ReduceIntegers<int8_t>(operands, reduction.op);
    case DataType::kU8:
      return ReduceIntegers<uint8_t>(operands, reduction.op);
    case DataType::kI16:
      return ReduceIntegers<int16_t>(operands, reduction.op);
    case DataType::kU16:
      return ReduceIntegers<uint16_t>(operands, reduction.op);
    case DataType::kI32:
      return ReduceIntegers<int32_t>(operands, reduction.op);
    case DataType::kU32:
      return ReduceIntegers<uint32_t>(operands, reduction.op);
    case DataType::kI64:
      return ReduceIntegers<int64_t>(operands, reduction.op);
    case DataType::kU64:
      return ReduceIntegers<uint64_t>(operands, reduction.op);
    default:
      return false;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace cohort::worker
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cohort::worker {

HWY_EXPORT(ReduceVectors);

void Reduce(DataType type, const Reduction& reduction, absl::Span<const void* const> inputs,
            absl::Span<void* const> outputs, int64_t count) {
  const Operands operands = {inputs, outputs, count};
  if (count == 0 || HWY_DYNAMIC_DISPATCH(ReduceVectors)(type, reduction, operands)) return;
  ReduceScalars(type, reduction, operands);
}

}  // namespace cohort::worker
#endif  // HWY_ONCE
