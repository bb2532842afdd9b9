#include "client/parallel/tensor_map/broadcast.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/collective/call_deadline.h"
#include "client/parallel/tensor_map/entries/entries.h"
#include "client/parallel/tensor_map/entries/packing.h"
#include "client/parallel/tensor_map/group_tensors.h"

namespace cohort::parallel {
namespace {

// Ranks exchange this before anything moves, in the 63 bits of a size: a mark of this call, and the
// root in their view. The root adds the bytes of its front and whether more comes after it. If
// ranks differ, all of them get the same error here. A broadcast of a few bytes could not do that,
// because its root waits for no other rank.
struct Word {
  static constexpr int kBytesBits = 39;
  static constexpr int kRootBits = 16;
  static constexpr int64_t kMark = 0x4D;  // of the version that this code understands

  int64_t mark = kMark;
  int root = 0;
  bool has_more = false;
  int64_t front_bytes = 0;

  int64_t Encode() const {
    // A number that does not fit is not a rank of any group.
    const auto shown = static_cast<uint16_t>(std::clamp<int>(root, INT16_MIN, INT16_MAX));
    return ((mark << kRootBits | shown) << 1 | (has_more ? 1 : 0)) << kBytesBits | front_bytes;
  }
  static Word Decode(int64_t word) {
    const int64_t upper = word >> kBytesBits;
    return {upper >> (kRootBits + 1), static_cast<int16_t>(upper >> 1 & 0xFFFF), (upper & 1) != 0,
            word & ((int64_t{1} << kBytesBits) - 1)};
  }
};

class Broadcast {
 public:
  Broadcast(client::Group& group, const BroadcastMapOptions& options)
      : group_(group),
        root_(options.root),
        by_tensor_(Moves(group, /*on_gpu=*/false)),
        on_stream_(options.call.stream.has_value()),
        deadline_(options.call) {}

  absl::StatusOr<TensorMap> FromHere(const TensorMap* map) const {
    const absl::StatusOr<Parcel> parcel = Prepare(map);
    const absl::Status refused = parcel.ok() ? absl::OkStatus() : Named(parcel.status());
    if (group_.size() == 1) {
      COHORT_RETURN_IF_ERROR(refused);
      return *map;
    }
    std::string text;
    Tensor front;
    if (refused.ok()) {
      front = parcel->front;
    } else {
      text = EncodeError(refused);
      front = Tensor(text.data(), DataType::kU8, {static_cast<int64_t>(text.size())});
    }
    const bool has_more = refused.ok() && parcel->packing.has_more();
    COHORT_RETURN_IF_ERROR(Agree(has_more, front.bytes()).status());
    COHORT_RETURN_IF_ERROR(SendFront(front));
    COHORT_RETURN_IF_ERROR(refused);
    if (has_more) {
      COHORT_RETURN_IF_ERROR(AllAreReady(absl::OkStatus()));
      COHORT_RETURN_IF_ERROR(BroadcastBehind(*parcel));
    }
    return *map;
  }

  absl::StatusOr<TensorMap> FromRoot() const {
    COHORT_ASSIGN_OR_RETURN(const Word root, Agree(false, 0));
    COHORT_ASSIGN_OR_RETURN(const Tensor front, ReceiveFront(root.front_bytes));
    DecodedMap decoded;
    Parcel parcel;
    const absl::Status own = Unpack(front, decoded, parcel);
    if (!root.has_more) {
      COHORT_RETURN_IF_ERROR(own);
    } else {
      COHORT_RETURN_IF_ERROR(AllAreReady(own));
      COHORT_RETURN_IF_ERROR(BroadcastBehind(parcel));
    }
    for (size_t i = 0; i < parcel.tensors.size(); ++i) {
      decoded.Fill(i, std::move(parcel.tensors[i]));
    }
    return std::move(decoded).Take();
  }

 private:
  // A map that is being broadcast.
  struct Parcel {
    Packing packing;
    Tensor front;
    Tensor on_gpu;  // the packing's
    std::vector<Tensor> tensors;
  };

  absl::Status Named(const absl::Status& status) const {
    return absl::Status(status.code(), absl::StrCat("the tensor map of rank ", root_, " of group ",
                                                    group_.name(), ": ", status.message()));
  }

  // --- On the root.

  // All steps that can fail on the root alone, before it tells the other ranks.
  absl::StatusOr<Parcel> Prepare(const TensorMap* map) const {
    if (map == nullptr) return absl::InvalidArgumentError("the root gave no map");
    const auto whole = [this](WayTo way, const Tensor& tensor) -> absl::StatusOr<int> {
      COHORT_RETURN_IF_ERROR(CheckMoves(group_, way, tensor));
      return 1;
    };
    COHORT_ASSIGN_OR_RETURN(EncodedMap encoded, EncodeMap(*map, whole));
    Parcel parcel;
    if (group_.size() == 1) return parcel;
    parcel.packing = Packing::Of(encoded.entries.size(), encoded.tensor_entries, !by_tensor_);
    if (parcel.packing.front_bytes() >> Word::kBytesBits != 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("its small tensors need ", parcel.packing.front_bytes(), " bytes, at most ",
                       (int64_t{1} << Word::kBytesBits) - 1, " can be sent"));
    }
    COHORT_ASSIGN_OR_RETURN(parcel.front, AllocateSmall(group_, parcel.packing.front_bytes()));
    WriteEntries(encoded.entries, parcel.front);
    COHORT_RETURN_IF_ERROR(AllocatePackOnGpu(parcel));
    std::vector<client::TensorCopy> on_gpu;
    for (size_t i = 0; i < encoded.tensors.size(); ++i) {
      if (!parcel.packing.is_packed(i)) continue;
      const Tensor to = ViewOf(parcel, i, encoded.tensor_entries[i]);
      if (to.device().is_cuda()) {
        on_gpu.push_back({encoded.tensors[i], to});
      } else {
        COHORT_RETURN_IF_ERROR(CopyTensor(encoded.tensors[i], to));
      }
    }
    if (!on_gpu.empty()) {
      COHORT_RETURN_IF_ERROR(group_.CopyAll(on_gpu, deadline_.LeftFor(parcel.on_gpu.device())));
    }
    parcel.tensors = std::move(encoded.tensors);
    return parcel;
  }

  absl::Status SendFront(const Tensor& front) const {
    if (group_.placement() != Placement::kDevice)
      return group_.Broadcast(front, root_, deadline_.LeftOnHost());
    const absl::string_view bytes(static_cast<const char*>(front.data()),
                                  static_cast<size_t>(front.bytes()));
    return group_.BroadcastObject(bytes, root_, deadline_.LeftOnHost()).status();
  }

  // --- On the other ranks.

  absl::StatusOr<Tensor> ReceiveFront(int64_t bytes) const {
    if (!by_tensor_) {
      COHORT_ASSIGN_OR_RETURN(const std::string object,
                              group_.BroadcastObject("", root_, deadline_.LeftOnHost()));
      Tensor front = Tensor::Uninitialized(DataType::kU8, {static_cast<int64_t>(object.size())});
      std::memcpy(front.data(), object.data(), object.size());
      return front;
    }
    absl::StatusOr<Tensor> front = AllocateSmall(group_, bytes);
    // It is large, then: in its broadcast all wait for each other.
    if (!front.ok()) return group_.FailCollective(Named(front.status()), deadline_.LeftOnHost());
    COHORT_RETURN_IF_ERROR(group_.Broadcast(*front, root_, deadline_.LeftOnHost()));
    return front;
  }

  // Errors: the root's error; why this rank cannot take the map.
  absl::Status Unpack(const Tensor& front, DecodedMap& decoded, Parcel& parcel) const {
    COHORT_ASSIGN_OR_RETURN(const absl::string_view entries, EntriesIn(front));
    COHORT_ASSIGN_OR_RETURN(decoded, DecodedMap::Parse(entries));
    parcel.packing = Packing::Of(entries.size(), decoded.tensors(), !by_tensor_);
    if (parcel.packing.front_bytes() != front.bytes()) {
      return absl::InvalidArgumentError(absl::StrCat("its front came with ", front.bytes(),
                                                     " bytes, expected ",
                                                     parcel.packing.front_bytes()));
    }
    parcel.front = front;
    COHORT_RETURN_IF_ERROR(AllocatePackOnGpu(parcel));
    for (size_t i = 0; i < decoded.tensors().size(); ++i) {
      const TensorEntry& entry = decoded.tensors()[i];
      if (parcel.packing.is_packed(i)) {
        parcel.tensors.push_back(ViewOf(parcel, i, entry));
      } else {
        COHORT_ASSIGN_OR_RETURN(Tensor tensor, AllocateFor(group_, entry));
        parcel.tensors.push_back(std::move(tensor));
      }
    }
    return absl::OkStatus();
  }

  // --- On all ranks.

  // All ranks exchange their words and compare them; returns the root's.
  absl::StatusOr<Word> Agree(bool has_more, int64_t front_bytes) const {
    const Word own = {Word::kMark, root_, has_more, front_bytes};
    COHORT_ASSIGN_OR_RETURN(const client::Sizes words,
                            group_.ExchangeSizes(own.Encode(), deadline_.LeftOnHost()));
    const int first = Word::Decode(words[0]).root;
    for (size_t rank = 0; rank < words.size(); ++rank) {
      const Word word = Word::Decode(words[rank]);
      if (word.mark != Word::kMark) {
        return Differ(absl::StrCat("rank ", rank, " calls something else"));
      }
      if (word.root < 0 || word.root >= group_.size()) {
        return Differ(absl::StrCat("rank ", rank, " says that the root is ", word.root,
                                   ", which is not in 0..", group_.size() - 1));
      }
      if (word.root != first) {
        return Differ(absl::StrCat("rank 0 says that the root is ", first, ", rank ", rank,
                                   " that it is ", word.root));
      }
    }
    return Word::Decode(words[static_cast<size_t>(root_)]);
  }
  absl::Status Differ(absl::string_view how) const {
    return absl::InvalidArgumentError(
        absl::StrCat("broadcast of a tensor map in group ", group_.name(), ": ", how));
  }

  absl::Status AllocatePackOnGpu(Parcel& parcel) const {
    const int64_t bytes = parcel.packing.gpu_bytes();
    if (bytes == 0) return absl::OkStatus();
    TensorEntry pack = {DataType::kU8, /*on_gpu=*/true, 1, {bytes}};
    COHORT_ASSIGN_OR_RETURN(parcel.on_gpu, AllocateFor(group_, pack));
    return absl::OkStatus();
  }
  static Tensor ViewOf(const Parcel& parcel, size_t index, const TensorEntry& entry) {
    return parcel.packing.ViewOf(index, entry, entry.on_gpu ? parcel.on_gpu : parcel.front);
  }

  // Whether all ranks can go on to the tensors after the front. A rank that cannot tells the others
  // so instead of the next broadcast, in which all wait for each other. On a stream they do not
  // wait.
  absl::Status AllAreReady(const absl::Status& own) const {
    if (!on_stream_) {
      return own.ok() ? own : group_.FailCollective(Named(own), deadline_.LeftOnHost());
    }
    COHORT_ASSIGN_OR_RETURN(const client::Sizes ready,
                            group_.ExchangeSizes(own.ok() ? 1 : 0, deadline_.LeftOnHost()));
    if (!own.ok()) return Named(own);
    const auto unready = std::find(ready.begin(), ready.end(), 0);
    if (unready == ready.end()) return own;
    return Named(absl::InvalidArgumentError(absl::StrCat(
        "rank ", unready - ready.begin(), " cannot take it; its own error has the reason")));
  }

  absl::Status BroadcastBehind(const Parcel& parcel) const {
    if (parcel.packing.gpu_bytes() > 0) {
      COHORT_RETURN_IF_ERROR(
          group_.Broadcast(parcel.on_gpu, root_, deadline_.LeftFor(parcel.on_gpu.device())));
    }
    for (size_t i = 0; i < parcel.tensors.size(); ++i) {
      if (!parcel.packing.is_alone(i)) continue;
      const Tensor& tensor = parcel.tensors[i];
      COHORT_RETURN_IF_ERROR(group_.Broadcast(tensor, root_, deadline_.LeftFor(tensor.device())));
    }
    return absl::OkStatus();
  }

  client::Group& group_;
  const int root_;
  const bool by_tensor_;  // the front is broadcast as a tensor; else as an object
  const bool on_stream_;
  const client::CallDeadline deadline_;
};

}  // namespace

absl::StatusOr<TensorMap> BroadcastTensorMap(client::Group& group, const TensorMap* map,
                                             const BroadcastMapOptions& options) {
  const Broadcast broadcast(group, options);
  return group.rank() == options.root ? broadcast.FromHere(map) : broadcast.FromRoot();
}

Pending<TensorMap> StartBroadcastTensorMap(client::AsyncCalls& calls, TensorMap map,
                                           const BroadcastMapOptions& options) {
  return Pending<TensorMap>::Start(calls, [map = std::move(map), options](client::Group& group) {
    return BroadcastTensorMap(group, &map, options);
  });
}

}  // namespace cohort::parallel
