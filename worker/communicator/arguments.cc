#include "worker/communicator/arguments.h"

#include "absl/strings/str_cat.h"
#include "worker/communicator/refusal.h"

namespace cohort::worker {
namespace {

constexpr absl::string_view kNames[] = {"all_reduce", "reduce",         "broadcast",
                                        "all_gather", "reduce_scatter", "all_to_all",
                                        "gather",     "scatter",        "barrier"};

bool IsVerb(Verb verb) { return verb >= Verb::kAllReduce && verb <= Verb::kBarrier; }

// How many times `count` elements a rank reads and writes.
int InputParts(Verb verb, bool is_root, int size) {
  switch (verb) {
    case Verb::kReduceScatter:
    case Verb::kAllToAll:
      return size;
    case Verb::kScatter:
      return is_root ? size : 0;
    case Verb::kBroadcast:
      return is_root ? 1 : 0;
    case Verb::kBarrier:
      return 0;
    default:
      return 1;
  }
}
int OutputParts(Verb verb, bool is_root, int size) {
  switch (verb) {
    case Verb::kAllGather:
    case Verb::kAllToAll:
      return size;
    case Verb::kGather:
      return is_root ? size : 0;
    case Verb::kReduce:
      return is_root ? 1 : 0;
    case Verb::kBarrier:
      return 0;
    default:
      return 1;
  }
}

absl::Status Refuse(const Operation& operation, absl::string_view why) {
  return RefusalError(absl::StrCat(NameOf(operation.verb), ": ", why));
}

// Where the input may begin if it lies in the output, or the other way round: in place.
int64_t InPlaceOffset(Verb verb, int rank, int64_t bytes) {
  switch (verb) {
    case Verb::kAllGather:
    case Verb::kGather:
      return rank * bytes;  // of the input in the output
    case Verb::kReduceScatter:
    case Verb::kScatter:
      return -rank * bytes;  // of the output in the input
    default:
      return 0;
  }
}

}  // namespace

std::string NameOf(Verb verb) {
  if (!IsVerb(verb)) return absl::StrCat("verb ", static_cast<int>(verb));
  return std::string(kNames[static_cast<int>(verb) - 1]);
}

std::string Describe(const Operation& operation) {
  std::string text = NameOf(operation.verb);
  if (operation.verb == Verb::kBarrier) return text;
  absl::StrAppend(&text, " of ", operation.count, " ", NameOf(operation.type));
  if (Reduces(operation.verb)) absl::StrAppend(&text, " by ", NameOf(operation.reduction.op));
  if (operation.reduction.op == ReduceOp::kPreMulSum) {
    absl::StrAppend(&text, " times ", operation.reduction.scale);
  }
  if (HasRoot(operation.verb)) absl::StrAppend(&text, ", root ", operation.root);
  return text;
}

int64_t InputBytes(const Operation& operation, int rank, int size) {
  const bool is_root = HasRoot(operation.verb) && operation.root == rank;
  return InputParts(operation.verb, is_root, size) * operation.count * SizeOf(operation.type);
}

int64_t OutputBytes(const Operation& operation, int rank, int size) {
  const bool is_root = HasRoot(operation.verb) && operation.root == rank;
  return OutputParts(operation.verb, is_root, size) * operation.count * SizeOf(operation.type);
}

absl::Status CheckArguments(const Operation& operation, int rank, int size, const void* input,
                            const void* output) {
  if (operation.verb == Verb::kBarrier) return absl::OkStatus();
  const int64_t count = operation.count;
  if (count < 0) return Refuse(operation, absl::StrCat("a count of ", count));
  const int64_t element = SizeOf(operation.type);
  int64_t bytes_of_all = 0;
  if (__builtin_mul_overflow(count, element * size, &bytes_of_all)) {
    return Refuse(operation, absl::StrCat(count, " elements for each of ", size, " ranks are more ",
                                          "than memory has addresses"));
  }
  if (HasRoot(operation.verb) && (operation.root < 0 || operation.root >= size)) {
    return Refuse(operation, absl::StrCat("root ", operation.root, " is not in 0..", size - 1));
  }
  if (Reduces(operation.verb)) {
    const absl::Status reducible = CheckReducible(operation.type, operation.reduction.op);
    if (!reducible.ok()) return Refuse(operation, reducible.message());
  }
  const int64_t bytes = count * element;
  const int64_t input_bytes = InputBytes(operation, rank, size);
  const int64_t output_bytes = OutputBytes(operation, rank, size);
  if (input_bytes > 0 && input == nullptr) return Refuse(operation, "the input is null");
  if (output_bytes > 0 && output == nullptr) return Refuse(operation, "the output is null");
  if (input_bytes == 0 || output_bytes == 0) return absl::OkStatus();
  const auto* const from = static_cast<const char*>(input);
  const auto* const to = static_cast<const char*>(output);
  const bool apart = from + input_bytes <= to || to + output_bytes <= from;
  const bool in_place =
      from == to + InPlaceOffset(operation.verb, rank, bytes) && operation.verb != Verb::kAllToAll;
  if (apart || in_place) return absl::OkStatus();
  return Refuse(operation, "input and output overlap, and not as \"in place\" means for it");
}

std::string Describe(const Transfer& transfer) {
  return absl::StrCat(transfer.sends ? "send of " : "receive of ", transfer.count, " ",
                      NameOf(transfer.type), transfer.sends ? " to rank " : " from rank ",
                      transfer.peer);
}

absl::Status CheckTransfers(absl::Span<const Transfer> transfers, int rank, int size) {
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
  }
  return absl::OkStatus();
}

absl::Status CheckNotes(absl::Span<const Transfer> notes, int rank, int size) {
  const absl::Status status = CheckTransfers(notes, rank, size);
  if (!status.ok()) return status;
  for (const Transfer& note : notes) {
    if (note.count * SizeOf(note.type) <= kNoteBytes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(note), ": a note has ", kNoteBytes, " bytes at most"));
  }
  return absl::OkStatus();
}

}  // namespace cohort::worker
