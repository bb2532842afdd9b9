// Checks the first bytes of a TLS connection before OpenSSL sees them.
//
// OpenSSL allocates the size that a ClientHello announces, up to 128 KiB, before the rest has come.
// Nine bytes of a client without a certificate would make the server allocate that.
#ifndef COHORT_BASE_PORT_CLIENT_HELLO_H_
#define COHORT_BASE_PORT_CLIENT_HELLO_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort {

// The first byte of a TLS connection.
inline constexpr char kTlsHandshake = 0x16;
// The header of a TLS record (5 bytes) and that of the ClientHello in it (4 bytes).
inline constexpr size_t kClientHelloHeaderBytes = 9;
// A ClientHello of OpenSSL has 300 to 600 bytes, and less than 2 KiB with a post-quantum key.
inline constexpr uint32_t kMaxClientHelloBytes = 16 << 10;

// `first` has at least kClientHelloHeaderBytes bytes. Errors: INVALID_ARGUMENT (they do not begin a
// ClientHello), RESOURCE_EXHAUSTED (it announces more than kMaxClientHelloBytes).
absl::Status CheckClientHello(absl::string_view first);

}  // namespace cohort

#endif  // COHORT_BASE_PORT_CLIENT_HELLO_H_
