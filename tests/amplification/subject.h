// The subjects of the table: the messages of a protocol of a daemon, each in several forms, from a
// peer with some rights.
#ifndef COHORT_TESTS_AMPLIFICATION_SUBJECT_H_
#define COHORT_TESTS_AMPLIFICATION_SUBJECT_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cohort::amplification {

enum class Form {
  kLargest,     // as large as the limit of a request admits, with one long text
  kElements,    // as large, with one field repeated: small elements, or the same key
  kUnknown,     // as large, with fields that the message does not have
  kCompressed,  // marked as compressed, with zeros that unpack to a multiple of the limit
  kRepeated,    // many, one behind the other
  kPartial,     // all but the last byte of the largest, on several connections
  kSilent,      // its beginning and nothing more, on several connections
  kAbandoned,   // the largest and the unknown fields, and then the end of the connection
};
inline constexpr Form kForms[] = {Form::kLargest,    Form::kElements, Form::kUnknown,
                                  Form::kCompressed, Form::kRepeated, Form::kPartial,
                                  Form::kSilent,     Form::kAbandoned};
const char* NameOf(Form form);

// The connections of an attack stay open as long as this object.
struct Sent {
  int64_t bytes = 0;
  std::shared_ptr<void> connections;
};

struct Message {
  std::string name;
  // Sends the message in this form. Absent: the protocol has no such form.
  std::function<std::optional<Sent>(Form form)> attack;
};

enum class Peer {
  kWithoutRights,
  kMember,  // of a tenant
};

struct Subject {
  std::string protocol;
  Peer peer = Peer::kWithoutRights;
  pid_t daemon = 0;
  std::vector<Message> messages;
  // A call of another client, which an attack must not delay. False: it has failed.
  std::function<bool()> innocent_call;
};

}  // namespace cohort::amplification

#endif  // COHORT_TESTS_AMPLIFICATION_SUBJECT_H_
