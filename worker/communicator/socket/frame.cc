#include "worker/communicator/socket/frame.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace cohort::worker {

bool operator==(const Subject& a, const Subject& b) {
  return std::memcmp(&a, &b, sizeof(Subject)) == 0;
}

Subject SubjectOf(const Operation& operation) {
  Subject subject;
  subject.verb = static_cast<uint8_t>(operation.verb);
  subject.tag = operation.tag;
  if (operation.verb == Verb::kBarrier) return subject;
  subject.count = operation.count;
  subject.type = static_cast<uint8_t>(operation.type);
  if (HasRoot(operation.verb)) subject.root = operation.root;
  if (!Reduces(operation.verb)) return subject;
  subject.op = static_cast<uint8_t>(operation.reduction.op);
  if (operation.reduction.op == ReduceOp::kPreMulSum) {
    std::memcpy(&subject.scale, &operation.reduction.scale, sizeof(subject.scale));
  }
  return subject;
}

Subject SubjectOf(const Transfer& transfer, uint32_t tag) {
  Subject subject;
  subject.tag = tag;
  subject.count = transfer.count;
  subject.type = static_cast<uint8_t>(transfer.type);
  return subject;
}

std::string Describe(const Subject& subject) {
  const bool known_type = IsDataType(subject.type);
  if (subject.verb == 0) {
    return absl::StrCat(subject.count, " ",
                        known_type ? std::string(NameOf(static_cast<DataType>(subject.type)))
                                   : absl::StrCat("elements of type ", subject.type));
  }
  Operation operation;
  operation.verb = static_cast<Verb>(subject.verb);
  operation.count = subject.count;
  operation.root = subject.root;
  const bool known_op = !Reduces(operation.verb) || IsReduceOp(subject.op);
  if (operation.verb == Verb::kBarrier || !known_type || !known_op) return NameOf(operation.verb);
  operation.type = static_cast<DataType>(subject.type);
  if (Reduces(operation.verb)) {
    operation.reduction.op = static_cast<ReduceOp>(subject.op);
    std::memcpy(&operation.reduction.scale, &subject.scale, sizeof(subject.scale));
  }
  return Describe(operation);
}

}  // namespace cohort::worker
