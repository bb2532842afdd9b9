#include "worker/communicator/nccl/api/testing/fake_operation.h"

#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace cohort::worker {
namespace {

using Kind = FakeOperation::Kind;
using Operations = std::vector<const FakeOperation*>;

// No memory is this large: a caller took a negative number for a size.
constexpr size_t kLargestCount = size_t{1} << 48;

size_t BytesOf(const FakeOperation& operation) {
  return operation.count * NcclBytes(operation.type);
}

void Copy(void* to, const void* from, size_t bytes) {
  if (to != from && bytes > 0) std::memmove(to, from, bytes);
}

const char* InputAt(const FakeOperation& operation, size_t part) {
  return static_cast<const char*>(operation.input) + part * BytesOf(operation);
}
char* OutputAt(const FakeOperation& operation, size_t part) {
  return static_cast<char*>(operation.output) + part * BytesOf(operation);
}

// Returns the reduction of part `part` of each input.
std::vector<char> Reduced(const Operations& operations, size_t part) {
  std::vector<const void*> inputs;
  std::vector<FakeScalar> scalars;
  for (const FakeOperation* operation : operations) {
    inputs.push_back(InputAt(*operation, part));
    scalars.push_back(operation->scalar);
    if (operation->scalar_memory != nullptr) {
      std::memcpy(scalars.back().data(), operation->scalar_memory, NcclBytes(operation->type));
    }
  }
  const FakeOperation& first = *operations.front();
  std::vector<char> result(BytesOf(first));
  ReduceAsNccl(first.type, first.op, inputs, scalars, result.data(), first.count);
  return result;
}

bool NeedsInput(const FakeOperation& operation, bool is_root) {
  switch (operation.kind) {
    case Kind::kBroadcast:
    case Kind::kScatter:
      return is_root;
    case Kind::kReceive:
      return false;
    default:
      return true;
  }
}

bool NeedsOutput(const FakeOperation& operation, bool is_root) {
  switch (operation.kind) {
    case Kind::kReduce:
    case Kind::kGather:
      return is_root;
    case Kind::kSend:
      return false;
    default:
      return true;
  }
}

}  // namespace

bool Reduces(const FakeOperation& operation) {
  return operation.kind == Kind::kAllReduce || operation.kind == Kind::kReduce ||
         operation.kind == Kind::kReduceScatter;
}

bool HasRoot(const FakeOperation& operation) {
  return operation.kind == Kind::kReduce || operation.kind == Kind::kBroadcast ||
         operation.kind == Kind::kGather || operation.kind == Kind::kScatter;
}

absl::string_view FunctionOf(Kind kind) {
  switch (kind) {
    case Kind::kAllReduce:
      return "ncclAllReduce";
    case Kind::kReduce:
      return "ncclReduce";
    case Kind::kBroadcast:
      return "ncclBroadcast";
    case Kind::kAllGather:
      return "ncclAllGather";
    case Kind::kReduceScatter:
      return "ncclReduceScatter";
    case Kind::kAllToAll:
      return "ncclAlltoAll";
    case Kind::kGather:
      return "ncclGather";
    case Kind::kScatter:
      return "ncclScatter";
    case Kind::kSend:
      return "ncclSend";
    case Kind::kReceive:
      return "ncclRecv";
  }
  return "";
}

std::string Describe(const FakeOperation& operation) {
  std::string text = absl::StrCat(FunctionOf(operation.kind), " of ", operation.count,
                                  " elements of type ", static_cast<int>(operation.type));
  if (Reduces(operation)) absl::StrAppend(&text, " by ", static_cast<int>(operation.op));
  if (HasRoot(operation)) absl::StrAppend(&text, " with root ", operation.peer);
  if (IsMessage(operation)) absl::StrAppend(&text, " with rank ", operation.peer);
  return text;
}

ncclResult_t CheckFakeOperation(const FakeOperation& operation, int rank, int ranks) {
  if (NcclBytes(operation.type) == 0 || operation.count > kLargestCount) {
    return ncclInvalidArgument;
  }
  if ((HasRoot(operation) || IsMessage(operation)) &&
      (operation.peer < 0 || operation.peer >= ranks)) {
    return ncclInvalidArgument;
  }
  if (Reduces(operation) && (operation.op < ncclSum || operation.op > ncclNumOps)) {
    return ncclInvalidArgument;
  }
  if (operation.count == 0) return ncclSuccess;
  const bool is_root = operation.peer == rank;
  if ((NeedsInput(operation, is_root) && operation.input == nullptr) ||
      (NeedsOutput(operation, is_root) && operation.output == nullptr)) {
    return ncclInvalidArgument;
  }
  return ncclSuccess;
}

bool Agree(const Operations& operations) {
  const FakeOperation& first = *operations.front();
  for (const FakeOperation* other : operations) {
    if (other->kind != first.kind || other->count != first.count || other->type != first.type ||
        (Reduces(first) && other->op != first.op) ||
        (HasRoot(first) && other->peer != first.peer)) {
      return false;
    }
  }
  return true;
}

void MoveCollective(const Operations& operations) {
  const FakeOperation& first = *operations.front();
  const size_t ranks = operations.size();
  const size_t bytes = BytesOf(first);
  const FakeOperation& root = *operations[HasRoot(first) ? static_cast<size_t>(first.peer) : 0];
  switch (first.kind) {
    case Kind::kAllReduce: {
      const std::vector<char> result = Reduced(operations, 0);
      for (const FakeOperation* to : operations) Copy(to->output, result.data(), bytes);
      return;
    }
    case Kind::kReduce:
      return Copy(root.output, Reduced(operations, 0).data(), bytes);
    case Kind::kBroadcast:
      for (const FakeOperation* to : operations) Copy(to->output, root.input, bytes);
      return;
    case Kind::kAllGather:
      for (const FakeOperation* to : operations) {
        for (size_t r = 0; r < ranks; ++r) Copy(OutputAt(*to, r), operations[r]->input, bytes);
      }
      return;
    case Kind::kReduceScatter:
      for (size_t r = 0; r < ranks; ++r) {
        Copy(operations[r]->output, Reduced(operations, r).data(), bytes);
      }
      return;
    case Kind::kAllToAll:
      for (size_t to = 0; to < ranks; ++to) {
        for (size_t from = 0; from < ranks; ++from) {
          Copy(OutputAt(*operations[to], from), InputAt(*operations[from], to), bytes);
        }
      }
      return;
    case Kind::kGather:
      for (size_t r = 0; r < ranks; ++r) Copy(OutputAt(root, r), operations[r]->input, bytes);
      return;
    case Kind::kScatter:
      for (size_t r = 0; r < ranks; ++r) Copy(operations[r]->output, InputAt(root, r), bytes);
      return;
    case Kind::kSend:
    case Kind::kReceive:
      return;
  }
}

bool Match(const FakeOperation& send, const FakeOperation& receive) {
  return BytesOf(send) == BytesOf(receive);
}

void MoveMessage(const FakeOperation& send, const FakeOperation& receive) {
  Copy(receive.output, send.input, BytesOf(send));
}

}  // namespace cohort::worker
