// The messages of a gRPC server: those of every method of every service that its reflection names.
#ifndef COHORT_TESTS_AMPLIFICATION_GRPC_MESSAGES_H_
#define COHORT_TESTS_AMPLIFICATION_GRPC_MESSAGES_H_

#include <cstddef>
#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "tests/amplification/raw_message.h"
#include "tests/amplification/subject.h"
#include "tests/amplification/wire_forms.h"

namespace cohort::amplification {

struct Sender {
  int port = 0;
  std::string token;               // empty: none
  size_t request_bytes = 0;        // the largest request that the server takes
  Adjust adjust;                   // may be null
  int connections = kConnections;  // of the forms that take several
};

// The full names of the services at the port, which serves reflection.
std::vector<std::string> ServicesAt(int port);

// Null: this program does not know the service, such as one of gRPC's own.
const google::protobuf::ServiceDescriptor* FindService(const std::string& name);

// The messages of a service. One that is not known has the methods `unknown_methods`.
std::vector<Message> GrpcMessages(const std::string& service, const Sender& sender,
                                  const std::vector<std::string>& unknown_methods = {});

}  // namespace cohort::amplification

#endif  // COHORT_TESTS_AMPLIFICATION_GRPC_MESSAGES_H_
