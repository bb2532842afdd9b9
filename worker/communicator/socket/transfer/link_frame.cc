#include "worker/communicator/socket/transfer/link_frame.h"

#include "absl/strings/str_cat.h"

namespace cohort::worker {

CollectiveKey KeyOf(const Transfer& transfer) {
  FlatCall call;
  call.collective = Collective::kExchange;
  call.type = transfer.type;
  call.count = transfer.count;
  call.tag = transfer.tag;
  return cohort::KeyOf(call);
}

std::string DescribeMessage(const CollectiveKey& key) {
  if (!IsDataType(key.type())) {
    return absl::StrCat(key.count, " elements of type ", key.type());
  }
  return absl::StrCat(key.count, " ", NameOf(static_cast<DataType>(key.type())));
}

}  // namespace cohort::worker
