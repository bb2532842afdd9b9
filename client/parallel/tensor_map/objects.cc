#include "client/parallel/tensor_map/objects.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/tensor_map/entries.h"
#include "client/parallel/tensor_map/packing.h"

namespace cohort::parallel {
namespace {

// Of the map that carries what is broadcast.
constexpr char kKey[] = "object";
// What an object begins with: a value follows, or why there is none (packing.h).
constexpr char kValue = 0;

absl::Status CheckPeer(const client::Group& group, int peer) {
  if (peer >= 0 && peer < group.size() && peer != group.rank()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("an object between ranks ", group.rank(), " and ",
                                                 peer, " of group ", group.name(), ", which has ",
                                                 group.size(), " ranks"));
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
  const absl::StatusOr<std::string> bytes = EncodeValue(value);
  if (bytes.ok())
    return group.SendObject(absl::StrCat(std::string(1, kValue), *bytes), to, options);
  COHORT_RETURN_IF_ERROR(group.SendObject(MakeRefusal(bytes.status()), to, options));
  return bytes.status();
}

absl::StatusOr<Value> ReceiveObject(client::Group& group, int from,
                                    const client::CallOptions& options) {
  COHORT_RETURN_IF_ERROR(CheckPeer(group, from));
  COHORT_ASSIGN_OR_RETURN(const std::string object, group.ReceiveObject(from, options));
  const bool is_value = !object.empty() && object[0] == kValue;
  absl::StatusOr<Value> value = RefusalIn(object);
  if (is_value) value = DecodeValue(absl::string_view(object).substr(1));
  if (value.ok()) return value;
  return absl::Status(value.status().code(),
                      absl::StrCat("the object of rank ", from, " of group ", group.name(), ": ",
                                   value.status().message()));
}

}  // namespace cohort::parallel
