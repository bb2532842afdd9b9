#include "worker/communicator/arguments.h"

#include "absl/strings/str_cat.h"
#include "worker/communicator/argument_error.h"

namespace cohort::worker {
namespace {

// How many times `count` elements a rank reads and writes.
int InputParts(Collective collective, bool is_root, int size) {
  switch (collective) {
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return size;
    case Collective::kScatter:
      return is_root ? size : 0;
    case Collective::kBroadcast:
      return is_root ? 1 : 0;
    case Collective::kBarrier:
      return 0;
    default:
      return 1;
  }
}
int OutputParts(Collective collective, bool is_root, int size) {
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return size;
    case Collective::kGather:
      return is_root ? size : 0;
    case Collective::kReduce:
      return is_root ? 1 : 0;
    case Collective::kBarrier:
      return 0;
    default:
      return 1;
  }
}

absl::Status InvalidCall(const FlatCall& call, absl::string_view why) {
  return ArgumentError(absl::StrCat(NameOf(call.collective), ": ", why));
}

// Where the input may begin if it lies in the output, or the other way round: in place.
int64_t InPlaceOffset(Collective collective, int rank, int64_t bytes) {
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kGather:
      return rank * bytes;  // of the input in the output
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return -rank * bytes;  // of the output in the input
    default:
      return 0;
  }
}

}  // namespace

int64_t InputBytes(const FlatCall& call, int rank, int size) {
  const bool is_root = HasRoot(call.collective) && call.root == rank;
  return InputParts(call.collective, is_root, size) * call.count * SizeOf(call.type);
}

int64_t OutputBytes(const FlatCall& call, int rank, int size) {
  const bool is_root = HasRoot(call.collective) && call.root == rank;
  return OutputParts(call.collective, is_root, size) * call.count * SizeOf(call.type);
}

absl::Status CheckArguments(const FlatCall& call, int rank, int size, const void* input,
                            const void* output) {
  if (call.collective == Collective::kBarrier) return absl::OkStatus();
  if (call.collective > Collective::kScatter) {
    return InvalidCall(call, "communicators know no such collective of flat memory");
  }
  const int64_t count = call.count;
  if (count < 0) return InvalidCall(call, absl::StrCat("a count of ", count));
  const int64_t element = SizeOf(call.type);
  int64_t bytes_of_all = 0;
  if (__builtin_mul_overflow(count, element * size, &bytes_of_all)) {
    return InvalidCall(call, absl::StrCat(count, " elements for each of ", size, " ranks are more ",
                                          "than memory has addresses"));
  }
  const bool has_root = HasRoot(call.collective);
  if (has_root && (call.root < 0 || call.root >= size)) {
    return InvalidCall(call, absl::StrCat("root ", call.root, " is not in 0..", size - 1));
  }
  if (Reduces(call.collective)) {
    const absl::Status reducible = CheckReducible(call.type, call.reduction.op);
    if (!reducible.ok()) return InvalidCall(call, reducible.message());
  }
  const int64_t bytes = count * element;
  const bool is_root = has_root && call.root == rank;
  const int64_t input_bytes = InputParts(call.collective, is_root, size) * bytes;
  const int64_t output_bytes = OutputParts(call.collective, is_root, size) * bytes;
  if (input_bytes > 0 && input == nullptr) return InvalidCall(call, "the input is null");
  if (output_bytes > 0 && output == nullptr) return InvalidCall(call, "the output is null");
  if (input_bytes == 0 || output_bytes == 0) return absl::OkStatus();
  const auto* const from = static_cast<const char*>(input);
  const auto* const to = static_cast<const char*>(output);
  const bool apart = from + input_bytes <= to || to + output_bytes <= from;
  const bool in_place = from == to + InPlaceOffset(call.collective, rank, bytes) &&
                        call.collective != Collective::kAllToAll;
  if (apart || in_place) return absl::OkStatus();
  return InvalidCall(call, "input and output overlap, but not in the way of an in-place call");
}

std::string Describe(const Transfer& transfer) {
  return absl::StrCat(transfer.sends ? "send of " : "receive of ", transfer.count, " ",
                      NameOf(transfer.type), transfer.sends ? " to rank " : " from rank ",
                      transfer.peer);
}

absl::Status CheckTransfers(absl::Span<const Transfer> transfers, int rank, int size,
                            MessageChannel channel) {
  for (const Transfer& transfer : transfers) {
    const auto refuse = [&](absl::string_view why) {
      return absl::InvalidArgumentError(absl::StrCat(Describe(transfer), ": ", why));
    };
    if (transfer.peer < 0 || transfer.peer >= size) {
      return refuse(absl::StrCat("ranks are 0..", size - 1));
    }
    if (transfer.peer == rank) return refuse("that is this rank itself");
    if (transfer.count < 0) return refuse("a negative count");
    int64_t bytes = 0;
    if (__builtin_mul_overflow(transfer.count, SizeOf(transfer.type), &bytes)) {
      return refuse("more than memory has addresses");
    }
    if (transfer.count > 0 && transfer.data == nullptr) return refuse("its memory is null");
    if (channel == MessageChannel::kControl && bytes > kControlBytes) {
      return refuse(absl::StrCat("a control message has at most ", kControlBytes, " bytes"));
    }
  }
  return absl::OkStatus();
}

}  // namespace cohort::worker
