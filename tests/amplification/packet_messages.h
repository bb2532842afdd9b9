// The messages of a local socket, each of which is one packet: those of every step that its
// protobuf type names.
#ifndef COHORT_TESTS_AMPLIFICATION_PACKET_MESSAGES_H_
#define COHORT_TESTS_AMPLIFICATION_PACKET_MESSAGES_H_

#include <functional>
#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "tests/amplification/subject.h"
#include "tests/amplification/wire_forms.h"

namespace cohort::amplification {

struct PacketSender {
  std::string name;  // of the local socket
  // The first packet of a connection; null: a connection begins with the message.
  std::function<std::string()> first;
  Adjust adjust;  // may be null
};

// A message for each field of the type, or one message if `by_field` is false.
std::vector<Message> PacketMessages(const google::protobuf::Descriptor& type, bool by_field,
                                    const PacketSender& sender);

}  // namespace cohort::amplification

#endif  // COHORT_TESTS_AMPLIFICATION_PACKET_MESSAGES_H_
