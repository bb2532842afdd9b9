// Arbitrary bytes of a client that has shown no certificate yet, or whose TLS handshake is damaged,
// at the port of a coordinator.
#ifndef COHORT_TESTS_FUZZ_ACCESS_TLS_CHECK_H_
#define COHORT_TESTS_FUZZ_ACCESS_TLS_CHECK_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::coordinator::fuzz {

struct TlsCounts {
  int64_t handshakes = 0;  // that the client finished
  int64_t answered = 0;    // clients that got a byte after it, or without one
  int64_t silent = 0;      // clients that got no byte at all
};

// `input`: client (1 byte: 1: by TLS, 2: with a certificate, 4: TLS 1.2, 8: the coordinator needs
// no certificate), bytes for each write (1 byte: 2^n), damage (1 byte: Damage::Kind), its place
// (2 bytes, little endian), its value (1 byte), message. A client without TLS sends the message
// alone, another one sends it behind its handshake.
//
// Errors: INTERNAL names the violated rule. The coordinator closes the connection within ten
// seconds after the client has ended its side. It keeps no descriptor, and no call of the client.
// It answers a client with a certificate on a new connection afterwards.
absl::Status CheckTls(absl::string_view input, TlsCounts* counts = nullptr);

// File name to input: handshakes of both versions with every damage, and the first bytes of other
// protocols.
std::map<std::string, std::string> SampleTlsInputs();

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_ACCESS_TLS_CHECK_H_
