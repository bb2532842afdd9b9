#include "client/parallel/tensor_map/objects.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/tensor_map/entries/entries.h"
#include "client/parallel/tensor_map/entries/packing.h"
#include "client/parallel/tensor_map/group_tensors.h"

namespace cohort::parallel {
namespace {

// The key of the broadcast value in its map.
constexpr char kKey[] = "object";
// The first byte of an object: a value follows, or the error of the sender (packing.h), or
//   size of entries(8 bytes) entries { elements of a tensor }
// which are the entries of a map with the value under kKey.
constexpr char kValue = 0;
constexpr char kValueWithTensors = static_cast<char>(0xFF);  // no status has this code
constexpr size_t kSizeBytes = sizeof(uint64_t);

absl::Status CheckPeer(const client::Group& group, int peer) {
  if (peer >= 0 && peer < group.size() && peer != group.rank()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("an object between ranks ", group.rank(), " and ",
                                                 peer, " of group ", group.name(), ", which has ",
                                                 group.size(), " ranks"));
}

bool HasTensor(const Value& value, int depth = 0) {
  if (depth > kMaxDepth) return false;  // another check refuses it
  if (value.As<Tensor>() != nullptr) return true;
  if (const List* const list = value.As<List>(); list != nullptr) {
    return std::any_of(list->begin(), list->end(),
                       [depth](const Value& one) { return HasTensor(one, depth + 1); });
  }
  if (const TensorMap* const map = value.As<TensorMap>(); map != nullptr) {
    return std::any_of(map->begin(), map->end(), [depth](const TensorMap::Entry& entry) {
      return HasTensor(entry.value, depth + 1);
    });
  }
  return false;
}

// Copies tensors; the copies are done when the call returns.
client::CallOptions Now(const client::CallOptions& options) {
  client::CallOptions now = options;
  now.stream.reset();
  return now;
}

absl::StatusOr<std::string> EncodeWithTensors(client::Group& group, const Value& value,
                                              const client::CallOptions& options) {
  TensorMap map;
  map.Set(kKey, value);
  COHORT_ASSIGN_OR_RETURN(
      const EncodedMap encoded,
      EncodeMap(map, [&group](WayTo way, const Tensor& tensor) -> absl::StatusOr<int> {
        COHORT_RETURN_IF_ERROR(CheckMoves(group, way, tensor));
        return 1;
      }));
  int64_t bytes = static_cast<int64_t>(encoded.entries.size());
  for (const TensorEntry& entry : encoded.tensor_entries) bytes += entry.bytes();
  if (bytes > kMaxEntryBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("an object of ", bytes, " bytes with its tensors; at most ", kMaxEntryBytes,
                     " travel by SendObject, more by SendTensorMap"));
  }
  std::string object(1, kValueWithTensors);
  object.reserve(1 + kSizeBytes + static_cast<size_t>(bytes));
  const uint64_t size = encoded.entries.size();
  object.append(reinterpret_cast<const char*>(&size), kSizeBytes);
  object += encoded.entries;
  for (const Tensor& tensor : encoded.tensors) {
    if (tensor.count() == 0) continue;
    Tensor here = tensor;
    if (!tensor.contiguous() || !tensor.device().is_host()) {
      here = Tensor::Zeros(tensor.type(), tensor.shape());
      COHORT_RETURN_IF_ERROR(group.Copy(tensor, here, Now(options)));
    }
    object.append(static_cast<const char*>(here.data()), static_cast<size_t>(here.bytes()));
  }
  return object;
}

// Decodes `object`, untrusted bytes without their first byte.
absl::StatusOr<Value> DecodeWithTensors(client::Group& group, absl::string_view object,
                                        const client::CallOptions& options) {
  uint64_t size = 0;
  if (object.size() < kSizeBytes) return absl::InvalidArgumentError("is cut off");
  std::memcpy(&size, object.data(), kSizeBytes);
  object.remove_prefix(kSizeBytes);
  if (object.size() < size) return absl::InvalidArgumentError("is cut off");
  COHORT_ASSIGN_OR_RETURN(DecodedMap decoded, DecodedMap::Parse(object.substr(0, size)));
  object.remove_prefix(size);
  int64_t bytes = 0;
  for (const TensorEntry& entry : decoded.tensors()) {
    if (entry.parts != 1) return absl::InvalidArgumentError("has a tensor in parts");
    bytes += entry.bytes();
  }
  if (bytes != static_cast<int64_t>(object.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("has tensors of ", bytes, " bytes, and ", object.size(), " came"));
  }
  for (size_t i = 0; i < decoded.tensors().size(); ++i) {
    const TensorEntry& entry = decoded.tensors()[i];
    COHORT_ASSIGN_OR_RETURN(const Tensor tensor, AllocateFor(group, entry));
    if (entry.count() > 0) {
      const bool on_host = tensor.device().is_host();
      const Tensor here = on_host ? tensor : Tensor::Zeros(entry.type, entry.shape);
      std::memcpy(here.data(), object.data(), static_cast<size_t>(entry.bytes()));
      object.remove_prefix(static_cast<size_t>(entry.bytes()));
      if (!on_host) COHORT_RETURN_IF_ERROR(group.Copy(here, tensor, Now(options)));
    }
    decoded.Fill(i, tensor);
  }
  const TensorMap map = std::move(decoded).Take();
  const Value* const value = map.Find(kKey);
  if (value == nullptr) return absl::InvalidArgumentError("has no value");
  return *value;
}

absl::StatusOr<std::string> EncodeObject(client::Group& group, const Value& value,
                                         const client::CallOptions& options) {
  if (HasTensor(value)) return EncodeWithTensors(group, value, options);
  COHORT_ASSIGN_OR_RETURN(const std::string bytes, EncodeValue(value));
  return absl::StrCat(std::string(1, kValue), bytes);
}

absl::StatusOr<Value> DecodeObject(client::Group& group, absl::string_view object,
                                   const client::CallOptions& options) {
  if (!object.empty() && object[0] == kValue) return DecodeValue(object.substr(1));
  if (!object.empty() && object[0] == kValueWithTensors) {
    return DecodeWithTensors(group, object.substr(1), options);
  }
  return DecodeError(object);
}

}  // namespace

absl::StatusOr<Value> BroadcastObject(client::Group& group, const Value* value,
                                      const BroadcastMapOptions& options) {
  TensorMap own;
  const bool gives = group.rank() == options.root && value != nullptr;
  if (gives) own.Set(kKey, *value);
  COHORT_ASSIGN_OR_RETURN(const TensorMap map,
                          BroadcastTensorMap(group, gives ? &own : nullptr, options));
  const Value* const came = map.Find(kKey);
  if (came != nullptr) return *came;
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", options.root, " of group ", group.name(), " broadcast no object"));
}

absl::StatusOr<List> BroadcastObjectList(client::Group& group, const List* list,
                                         const BroadcastMapOptions& options) {
  Value own;
  if (list != nullptr) own = *list;
  COHORT_ASSIGN_OR_RETURN(const Value came,
                          BroadcastObject(group, list == nullptr ? nullptr : &own, options));
  if (came.As<List>() != nullptr) return *came.As<List>();
  return absl::InvalidArgumentError(absl::StrCat("rank ", options.root, " of group ", group.name(),
                                                 " broadcast ", NameOf(came.kind()),
                                                 ", and no list"));
}

absl::Status SendObject(client::Group& group, const Value& value, int to,
                        const client::CallOptions& options) {
  COHORT_RETURN_IF_ERROR(CheckPeer(group, to));
  const absl::StatusOr<std::string> object = EncodeObject(group, value, options);
  if (object.ok()) return group.SendObject(*object, to, options);
  COHORT_RETURN_IF_ERROR(group.SendObject(EncodeError(object.status()), to, options));
  return object.status();
}

absl::StatusOr<Value> ReceiveObject(client::Group& group, int from,
                                    const client::CallOptions& options) {
  COHORT_RETURN_IF_ERROR(CheckPeer(group, from));
  COHORT_ASSIGN_OR_RETURN(const std::string object, group.ReceiveObject(from, options));
  absl::StatusOr<Value> value = DecodeObject(group, object, options);
  if (value.ok()) return value;
  return absl::Status(value.status().code(),
                      absl::StrCat("the object of rank ", from, " of group ", group.name(), ": ",
                                   value.status().message()));
}

}  // namespace cohort::parallel
