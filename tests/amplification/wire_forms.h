// A protobuf message in the forms that may cost its reader more than its sender.
//
//   const WireForms forms(descriptor, "", size_t{1} << 20);
//   Send(forms.Largest());
#ifndef COHORT_TESTS_AMPLIFICATION_WIRE_FORMS_H_
#define COHORT_TESTS_AMPLIFICATION_WIRE_FORMS_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace cohort::amplification {

// Thread-compatible.
class WireForms {
 public:
  // Requests of at most `bytes` bytes. Each begins with `head`, which is a message of the same
  // type. `descriptor` null: of a message that is not known here, which is taken to have a text as
  // its first field.
  WireForms(const google::protobuf::Descriptor* descriptor, std::string head, size_t bytes);

  // Each field set, once.
  std::string Small() const { return head_; }
  // One long text.
  std::string Largest() const;
  // For each repeated field: as many of the smallest elements as the request has room for.
  std::vector<std::string> Elements() const;
  // As many fields that the message does not have.
  std::string Unknown() const;

 private:
  const google::protobuf::Descriptor* const descriptor_;
  const std::string head_;
  const size_t bytes_;
};

// Changes a message in which each field is set, so that a daemon gets further with it.
using Adjust = std::function<void(google::protobuf::Message* message)>;
// A message of the type with each field set. Names are "g". `adjust` may be null.
std::string SmallMessage(const google::protobuf::Descriptor& descriptor, const Adjust& adjust);

// A gzip member of `bytes` zeros, about a thousandth of them in size.
std::string CompressedZeros(size_t bytes);

}  // namespace cohort::amplification

#endif  // COHORT_TESTS_AMPLIFICATION_WIRE_FORMS_H_
