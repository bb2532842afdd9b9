// Compiled once for each kind of vector unit; the kind is chosen at run time (Highway). The file
// stays whole, though it is long: Highway includes it once for each kind.
#include "worker/communicator/host/reduce/reduce_kernel.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

// Machines from before 2008.
#define HWY_DISABLED_TARGETS HWY_SSSE3
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/communicator/host/reduce/reduce_kernel.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
// Must follow foreach_target.h.
#include "hwy/highway.h"
#include "worker/communicator/host/reduce/reduce_scalar.h"

HWY_BEFORE_NAMESPACE();
namespace cohort::worker {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// --- Conversions between elements and lanes. One: the same for a single element.

// If kStream, stores past the caches; `to` is aligned for it. Highway streams at least 16 bytes.
template <bool kStream, typename Lanes, typename Tag, typename T>
HWY_INLINE void StoreLanes(Lanes lanes, Tag tag, T* to) {
  if constexpr (kStream && hn::MaxLanes(Tag()) * sizeof(T) >= 16) {
    hn::Stream(lanes, tag, to);
  } else {
    hn::StoreU(lanes, tag, to);
  }
}

template <typename T, typename VectorTag = hn::ScalableTag<T>>
struct PlainLanes {
  using Element = T;
  using Tag = VectorTag;
  using One = PlainLanes<T, hn::CappedTag<T, 1>>;
  HWY_INLINE hn::Vec<Tag> Load(Tag tag, const T* from) const { return hn::LoadU(tag, from); }
  template <bool kStream>
  HWY_INLINE void Store(Tag tag, hn::Vec<Tag> lanes, T* to) const {
    StoreLanes<kStream>(lanes, tag, to);
  }
};

template <typename VectorTag = hn::ScalableTag<float>>
struct F16Lanes {
  using Element = hwy::float16_t;
  using Tag = VectorTag;
  using One = F16Lanes<hn::CappedTag<float, 1>>;
  using Half = hn::Rebind<hwy::float16_t, Tag>;
  HWY_INLINE hn::Vec<Tag> Load(Tag tag, const Element* from) const {
    return hn::PromoteTo(tag, hn::LoadU(Half(), from));
  }
  template <bool kStream>
  HWY_INLINE void Store(Tag, hn::Vec<Tag> lanes, Element* to) const {
    // As bits, which can be streamed on all machines.
    const hn::RebindToUnsigned<Half> bits;
    StoreLanes<kStream>(hn::BitCast(bits, hn::DemoteTo(Half(), lanes)), bits,
                        reinterpret_cast<uint16_t*>(to));
  }
};

// Highway's own conversion to this type cuts; this one rounds to nearest, ties to even.
template <typename VectorTag = hn::ScalableTag<float>>
struct BF16Lanes {
  using Element = uint16_t;
  using Tag = VectorTag;
  using One = BF16Lanes<hn::CappedTag<float, 1>>;
  using Wide = hn::RebindToUnsigned<Tag>;
  using Signed = hn::RebindToSigned<Tag>;
  using Half = hn::Rebind<uint16_t, Tag>;
  HWY_INLINE hn::Vec<Tag> Load(Tag tag, const Element* from) const {
    return hn::BitCast(tag, hn::ShiftLeft<16>(hn::PromoteTo(Wide(), hn::LoadU(Half(), from))));
  }
  template <bool kStream>
  HWY_INLINE void Store(Tag, hn::Vec<Tag> lanes, Element* to) const {
    const Wide wide;
    const auto bits = hn::BitCast(wide, lanes);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(wide, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, odd), hn::Set(wide, 0x7FFF)));
    const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(wide, 0x8000));
    const auto nan = hn::Or(sign, hn::Set(wide, 0x7FC0));
    const auto result = hn::IfThenElse(hn::RebindMask(wide, hn::IsNaN(lanes)), nan, rounded);
    StoreLanes<kStream>(hn::DemoteTo(Half(), hn::BitCast(Signed(), result)), Half(), to);
  }
};

// --- Operations on two lanes.

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

// --- Operations on each lane, at the beginning and at the end.

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

// kFast: has separate loops for streaming and for the usual numbers of inputs and outputs. Each
// loop takes time to compile.
template <bool kFast, typename Lanes, typename Op, typename First, typename Last>
class Kernel {
 public:
  using Element = typename Lanes::Element;
  using Tag = typename Lanes::Tag;

  Kernel(const Operands& operands, Op op, First first, Last last)
      : operands_(operands), op_(op), first_(first), last_(last) {}

  void Run() const {
    const bool streams = kFast && operands_.stores == Stores::kStreaming;
    const int64_t aligned = streams || IsLarge() ? AlignedFrom() : -1;
    const bool aligns = aligned >= 0 && aligned < operands_.count;
    int64_t at = aligns ? aligned : 0;
    Piece(0, at);
    if constexpr (kFast) {
      if (streams && aligns) {
        at = Vectors<true>(at);
        // Streamed stores are in no order with others until here.
        hwy::FlushStream();
      } else {
        at = Vectors<false>(at);
      }
    } else {
      at = VectorsOf<false, 0, 0>(at);
    }
    Piece(at, operands_.count - at);
  }

 private:
  // The number of vectors in a step of the main loop.
  static constexpr int64_t kVectors = 4;

  const Element* input(size_t k, int64_t at) const {
    return static_cast<const Element*>(operands_.inputs[k]) + at;
  }
  Element* output(size_t k, int64_t at) const {
    return static_cast<Element*>(operands_.outputs[k]) + at;
  }

  // Whether aligned stores save more time than the elements before them take.
  bool IsLarge() const {
    constexpr int64_t kLargeBytes = 16 << 10;
    return operands_.count >= kLargeBytes / static_cast<int64_t>(sizeof(Element));
  }

  // The first element from which on stores to all outputs fill cache lines, as streaming requires;
  // negative: there is no such element.
  int64_t AlignedFrom() const {
    constexpr uintptr_t kAlignment = 64;
    const auto past = [&](size_t k) {
      return reinterpret_cast<uintptr_t>(output(k, 0)) % kAlignment;
    };
    for (size_t k = 1; k < operands_.outputs.size(); ++k) {
      if (past(k) != past(0)) return -1;
    }
    const uintptr_t bytes = (kAlignment - past(0)) % kAlignment;
    return bytes % sizeof(Element) == 0 ? static_cast<int64_t>(bytes / sizeof(Element)) : -1;
  }

  // Reduces the elements from `at` on that fill vectors. Returns where it ends.
  template <bool kStream>
  int64_t Vectors(int64_t at) const {
    const size_t inputs = operands_.inputs.size();
    const size_t outputs = operands_.outputs.size();
    if (inputs == 1 && outputs == 1) return VectorsOf<kStream, 1, 1>(at);
    if (inputs == 1 && outputs == 2) return VectorsOf<kStream, 1, 2>(at);
    if (inputs == 2 && outputs == 1) return VectorsOf<kStream, 2, 1>(at);
    if (inputs == 2 && outputs == 2) return VectorsOf<kStream, 2, 2>(at);
    if (inputs == 4 && outputs == 4) return VectorsOf<kStream, 4, 4>(at);
    return VectorsOf<kStream, 0, 0>(at);
  }

  // Addresses that the compiler can keep in registers, if it knows how many.
  template <size_t kCount, typename T, typename Pointers>
  struct Addresses {
    explicit Addresses(const Pointers& pointers) {
      for (size_t k = 0; k < kCount; ++k) at[k] = static_cast<T*>(pointers[k]);
    }
    HWY_INLINE T* operator[](size_t k) const { return at[k]; }
    size_t size() const { return kCount; }
    T* at[kCount];
  };
  template <typename T, typename Pointers>
  struct Addresses<0, T, Pointers> {
    explicit Addresses(const Pointers& pointers) : pointers(pointers) {}
    HWY_INLINE T* operator[](size_t k) const { return static_cast<T*>(pointers[k]); }
    size_t size() const { return pointers.size(); }
    const Pointers& pointers;
  };

  // 0: any number.
  template <bool kStream, size_t kInputs, size_t kOutputs>
  HWY_NOINLINE int64_t VectorsOf(int64_t at) const {
    const Tag tag;
    const Lanes lanes;
    const Op op = op_;
    const First first = first_;
    const Last last = last_;
    const Addresses<kInputs, const Element, absl::Span<const void* const>> in(operands_.inputs);
    const Addresses<kOutputs, Element, absl::Span<void* const>> out(operands_.outputs);
    const auto step = static_cast<int64_t>(hn::Lanes(tag));
    const int64_t end = operands_.count;
    for (; at + kVectors * step <= end; at += kVectors * step) {
      const Element* from = in[0] + at;
      auto a = first(tag, lanes.Load(tag, from));
      auto b = first(tag, lanes.Load(tag, from + step));
      auto c = first(tag, lanes.Load(tag, from + 2 * step));
      auto d = first(tag, lanes.Load(tag, from + 3 * step));
      for (size_t k = 1; k < in.size(); ++k) {
        from = in[k] + at;
        a = op(a, first(tag, lanes.Load(tag, from)));
        b = op(b, first(tag, lanes.Load(tag, from + step)));
        c = op(c, first(tag, lanes.Load(tag, from + 2 * step)));
        d = op(d, first(tag, lanes.Load(tag, from + 3 * step)));
      }
      a = last(tag, a);
      b = last(tag, b);
      c = last(tag, c);
      d = last(tag, d);
      for (size_t k = 0; k < out.size(); ++k) {
        Element* const to = out[k] + at;
        lanes.template Store<kStream>(tag, a, to);
        lanes.template Store<kStream>(tag, b, to + step);
        lanes.template Store<kStream>(tag, c, to + 2 * step);
        lanes.template Store<kStream>(tag, d, to + 3 * step);
      }
    }
    for (; at + step <= end; at += step) {
      auto value = first(tag, lanes.Load(tag, in[0] + at));
      for (size_t k = 1; k < in.size(); ++k) {
        value = op(value, first(tag, lanes.Load(tag, in[k] + at)));
      }
      value = last(tag, value);
      for (size_t k = 0; k < out.size(); ++k) {
        lanes.template Store<false>(tag, value, out[k] + at);
      }
    }
    return at;
  }

  // Reduces `count` elements that do not fill vectors, through copies in whole vectors.
  void Piece(int64_t at, int64_t count) const {
    const Tag tag;
    const Lanes lanes;
    constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(Tag()));
    // Reading a whole vector is slow if it was just written in pieces.
    constexpr int64_t kFew = 8;
    if (count <= kFew) return Elements(at, at + count);
    HWY_ALIGN Element rest[kLanes] = {};
    for (; count > 0; at += kLanes, count -= kLanes) {
      const size_t bytes = static_cast<size_t>(std::min(count, kLanes)) * sizeof(Element);
      std::memcpy(rest, input(0, at), bytes);
      auto value = first_(tag, lanes.Load(tag, rest));
      for (size_t k = 1; k < operands_.inputs.size(); ++k) {
        std::memcpy(rest, input(k, at), bytes);
        value = op_(value, first_(tag, lanes.Load(tag, rest)));
      }
      lanes.template Store<false>(tag, last_(tag, value), rest);
      for (size_t k = 0; k < operands_.outputs.size(); ++k) std::memcpy(output(k, at), rest, bytes);
    }
  }

  void Elements(int64_t begin, int64_t end) const {
    using One = typename Lanes::One;
    const typename One::Tag tag;
    const One one;
    // Elements may be unaligned, and a vector of one element needs alignment: it is read from a
    // copy.
    Element element;
    for (int64_t at = begin; at < end; ++at) {
      std::memcpy(&element, input(0, at), sizeof(element));
      auto value = first_(tag, one.Load(tag, &element));
      for (size_t k = 1; k < operands_.inputs.size(); ++k) {
        std::memcpy(&element, input(k, at), sizeof(element));
        value = op_(value, first_(tag, one.Load(tag, &element)));
      }
      one.template Store<false>(tag, last_(tag, value), &element);
      for (size_t k = 0; k < operands_.outputs.size(); ++k) {
        std::memcpy(output(k, at), &element, sizeof(element));
      }
    }
  }

  const Operands& operands_;
  const Op op_;
  const First first_;
  const Last last_;
};

template <typename Lanes, bool kFast = false, typename Op, typename First, typename Last>
void ReduceLanes(const Operands& operands, const Op& op, const First& first, const Last& last) {
  Kernel<kFast, Lanes, Op, First, Last>(operands, op, first, last).Run();
}

template <typename Lanes>
bool ReduceFloats(const Operands& operands, const Reduction& reduction) {
  switch (reduction.op) {
    case ReduceOp::kSum:
      ReduceLanes<Lanes, true>(operands, Sum(), Nothing(), Nothing());
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
      ReduceLanes<Lanes, true>(operands, Sum(), Nothing(),
                               Over{static_cast<double>(operands.inputs.size())});
      return true;
    case ReduceOp::kPreMulSum:
      ReduceLanes<Lanes>(operands, Sum(), Times{reduction.scale}, Nothing());
      return true;
    default:
      return false;
  }
}

// Leaves out products and averages: few machines multiply integers of all sizes or divide in
// vectors.
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

// Returns false if it does not support the type or the reduction.
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
      return ReduceFloats<F16Lanes<>>(operands, reduction);
#endif
    case DataType::kBF16:
      return ReduceFloats<BF16Lanes<>>(operands, reduction);
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

void CopyVectors(const Operands& operands) {
  ReduceLanes<PlainLanes<uint8_t>, true>(operands, Sum(), Nothing(), Nothing());
}

}  // namespace HWY_NAMESPACE
}  // namespace cohort::worker
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cohort::worker {

HWY_EXPORT(ReduceVectors);
HWY_EXPORT(CopyVectors);

void Reduce(DataType type, const Reduction& reduction, absl::Span<const void* const> inputs,
            absl::Span<void* const> outputs, int64_t count, Stores stores) {
  const Operands operands = {inputs, outputs, count, stores};
  if (count == 0 || outputs.empty()) return;
  if (HWY_DYNAMIC_DISPATCH(ReduceVectors)(type, reduction, operands)) return;
  ReduceScalars(type, reduction, operands);
}

void Copy(const void* input, absl::Span<void* const> outputs, int64_t bytes, Stores stores) {
  if (bytes == 0 || outputs.empty()) return;
  constexpr int64_t kFew = 256;
  if (bytes > kFew) {
    return HWY_DYNAMIC_DISPATCH(CopyVectors)(
        {absl::MakeConstSpan(&input, 1), outputs, bytes, stores});
  }
  for (void* const output : outputs) {
    if (output != input) std::memcpy(output, input, static_cast<size_t>(bytes));
  }
}

}  // namespace cohort::worker
#endif  // HWY_ONCE
