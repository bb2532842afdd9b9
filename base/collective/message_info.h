// Peer, type and size of a message that has arrived and was not received yet.
#ifndef COHORT_BASE_COLLECTIVE_MESSAGE_INFO_H_
#define COHORT_BASE_COLLECTIVE_MESSAGE_INFO_H_

#include <cstdint>

#include "base/tensor/data_type.h"

namespace cohort {

struct MessageInfo {
  int peer = -1;  // the rank that sent it
  DataType type = DataType::kU8;
  int64_t count = 0;  // elements
};

}  // namespace cohort

#endif  // COHORT_BASE_COLLECTIVE_MESSAGE_INFO_H_
