// How a group's ranks register memory with NCCL: all of them, or none.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/communicator/nccl/nccl_communicator.h"
#include "worker/cuda/device/cuda_device.h"

namespace cohort::worker {
namespace {

constexpr size_t kMaxText = 400;
constexpr size_t kMaxUuid = 48;

// The data that each rank sends to the others.
struct Word {
  int32_t code = 0;
  int32_t reaches_all = 0;
  int64_t bytes = 0;
  char uuid[kMaxUuid] = {};  // of the device
  char text[kMaxText] = {};
};

absl::Status StatusOf(const std::vector<Word>& words) {
  for (size_t rank = 0; rank < words.size(); ++rank) {
    if (words[rank].code == 0) continue;
    return absl::Status(
        static_cast<absl::StatusCode>(words[rank].code),
        absl::StrCat("rank ", rank, " cannot register memory: ",
                     absl::string_view(words[rank].text, strnlen(words[rank].text, kMaxText))));
  }
  return absl::OkStatus();
}

void Say(const absl::Status& status, Word* word) {
  word->code = static_cast<int32_t>(status.code());
  std::copy_n(status.message().data(), std::min(status.message().size(), kMaxText - 1), word->text);
}

// Whether `device` reads and writes the memory of all others, as symmetric windows need. Devices of
// other hosts, and those that this process does not see, are not reached.
bool ReachesAll(int device, int rank, const std::vector<Word>& words) {
  for (size_t other = 0; other < words.size(); ++other) {
    if (static_cast<int>(other) == rank) continue;
    const absl::string_view uuid(words[other].uuid, strnlen(words[other].uuid, kMaxUuid));
    const absl::StatusOr<int> peer = cuda::FindDevice(uuid);
    if (!peer.ok()) return false;
    const absl::StatusOr<bool> reaches = cuda::CanAccessPeer(device, *peer);
    if (!reaches.ok() || !*reaches) return false;
  }
  return words.size() > 1;
}

}  // namespace

absl::StatusOr<std::shared_ptr<NcclMemory>> NcclCommunicator::Allocate(size_t bytes,
                                                                       Instant deadline) {
  COHORT_RETURN_IF_ERROR(Stand());
  return RegisterOnAll(NcclMemory::Allocate(nccl_, clique_->device(), bytes, deadline), deadline);
}

absl::Status NcclCommunicator::Register(std::shared_ptr<NcclMemory> memory, Instant deadline) {
  if (memory == nullptr) return absl::InvalidArgumentError("no memory to register");
  COHORT_RETURN_IF_ERROR(Stand());
  return RegisterOnAll(std::move(memory), deadline).status();
}

absl::StatusOr<bool> NcclCommunicator::RegisterWhereAllHave(std::shared_ptr<NcclMemory> memory,
                                                            Instant deadline) {
  COHORT_RETURN_IF_ERROR(Stand());
  COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<NcclMemory> registered,
                          RegisterOnAll(std::move(memory), deadline));
  return registered != nullptr;
}

absl::StatusOr<std::shared_ptr<NcclMemory>> NcclCommunicator::RegisterOnAll(
    absl::StatusOr<std::shared_ptr<NcclMemory>> memory, Instant deadline) {
  const auto hear = [&](const Word& own) -> absl::StatusOr<std::vector<Word>> {
    std::vector<Word> words(static_cast<size_t>(size()));
    const absl::Status gathered =
        host_->AllGather(&own, words.data(), sizeof(own), DataType::kU8, deadline);
    if (gathered.ok()) return words;
    return Break(gathered);
  };
  const int device = clique_->device();
  absl::Status status = memory.status();
  const bool has_some = status.ok() && *memory != nullptr;
  if (has_some && (*memory)->device() != device) {
    status = absl::InvalidArgumentError(
        absl::StrCat("it is of CUDA device ", (*memory)->device(), ", and the rank's is ", device));
  }
  if (has_some && clique_->Find((*memory)->data(), 1).has_value()) {
    status = absl::InvalidArgumentError("it is registered");
  }
  Word own;
  const absl::StatusOr<cuda::DeviceInfo> info = cuda::DescribeDevice(device);
  if (status.ok()) status = info.status();
  Say(status, &own);
  if (status.ok() && has_some) {
    own.bytes = static_cast<int64_t>((*memory)->size());
    std::memcpy(own.uuid, info->uuid.data(), std::min(info->uuid.size(), kMaxUuid - 1));
  }
  COHORT_ASSIGN_OR_RETURN(std::vector<Word> words, hear(own));
  COHORT_RETURN_IF_ERROR(StatusOf(words));
  if (std::any_of(words.begin(), words.end(), [](const Word& word) { return word.bytes == 0; })) {
    return nullptr;
  }
  own.reaches_all = ReachesAll(device, rank(), words) ? 1 : 0;
  COHORT_ASSIGN_OR_RETURN(words, hear(own));
  // That NCCL gives a window proves nothing: where ranks do not reach each other it may give one
  // that is a plain registration.
  const bool as_window = std::all_of(words.begin(), words.end(), [&](const Word& word) {
    return word.reaches_all != 0 && word.bytes == own.bytes;
  });
  status = clique_->Register(*memory, as_window, deadline, [this] { return Standing(); });
  Say(status, &own);
  COHORT_ASSIGN_OR_RETURN(words, hear(own));
  const absl::Status failed = StatusOf(words);
  if (failed.ok()) return memory;
  // If only some ranks have registered their memory, NCCL knows no bounds.
  if (status.ok()) {
    const absl::Status undone = clique_->Deregister((*memory)->data(), deadline);
    if (!undone.ok()) return Break(undone);
  }
  return failed;
}

absl::Status NcclCommunicator::Deregister(const NcclMemory& memory, Instant deadline) {
  // Operations in flight may still use it.
  COHORT_RETURN_IF_ERROR(Await(deadline));
  const absl::Status status = clique_->Deregister(memory.data(), deadline);
  return status.ok() || absl::IsInvalidArgument(status) ? status : Break(status);
}

uint32_t NcclCommunicator::Registered(const FlatCall& call, const void* input,
                                      const void* output) const {
  // Tensors of the root alone are not compared.
  const bool all_have_input =
      call.collective != Collective::kBroadcast && call.collective != Collective::kScatter;
  const bool all_have_output =
      call.collective != Collective::kReduce && call.collective != Collective::kGather;
  uint32_t which = 0;
  uint64_t offset = 0;
  uint64_t which_also = 0;  // the number of a tensor of `also`
  const auto add = [&](uint32_t flag, const void* memory, int64_t bytes) {
    const auto found = clique_->Find(memory, static_cast<size_t>(bytes));
    if (!found.has_value()) return;
    which |= flag;
    if (which_also > 0) offset = Mixed(offset, which_also);
    if (found->window == 0) return;
    for (const int64_t number : {int64_t{flag}, found->window, found->offset}) {
      offset = Mixed(offset, static_cast<uint64_t>(number));
    }
  };
  if (all_have_input) add(kInputRegistered, input, InputBytes(call, rank(), size()));
  if (all_have_output) add(kOutputRegistered, output, OutputBytes(call, rank(), size()));
  for (const FlatTensor& tensor : call.also) {
    ++which_also;
    add(kInputRegistered, tensor.input, tensor.count * SizeOf(call.type));
    add(kOutputRegistered, tensor.output, tensor.count * SizeOf(call.type));
  }
  if (offset != 0)
    offset = std::max<uint64_t>(offset << kOffsetShift & UINT32_MAX, 1 << kOffsetShift);
  return which | static_cast<uint32_t>(offset);
}

}  // namespace cohort::worker
