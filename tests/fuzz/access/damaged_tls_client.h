// A TLS client of OpenSSL whose bytes are damaged on their way.
#ifndef COHORT_TESTS_FUZZ_ACCESS_DAMAGED_TLS_CLIENT_H_
#define COHORT_TESTS_FUZZ_ACCESS_DAMAGED_TLS_CLIENT_H_

#include <openssl/ssl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "base/tls/tls_context.h"

namespace cohort::coordinator::fuzz {

// The change of the bytes at one place of the client's stream.
struct Damage {
  enum class Kind : uint8_t {
    kNothing,
    kFlip,    // the byte is combined with `value` by XOR
    kInsert,  // `value` is sent in front of it, `value` times
    kDrop,    // it is not sent, and neither are the next `value` bytes
    kTwice,   // it is sent twice, and so are the next `value` bytes, as one piece
    kEnd,     // the client sends nothing more
  };
  static constexpr int kKinds = static_cast<int>(Kind::kEnd) + 1;

  Kind kind = Kind::kNothing;
  size_t at = 0;
  uint8_t value = 0;
};

// Thread-compatible. It uses no socket: bytes come from Take and go to Give.
class DamagedTlsClient {
 public:
  // `version`: TLS1_2_VERSION or TLS1_3_VERSION.
  DamagedTlsClient(const TlsFiles& files, int version, const Damage& damage);

  // Goes on with the handshake, and then sends `message` once.
  void Run(absl::string_view message);
  // Bytes of the server.
  void Give(absl::string_view bytes);
  // The bytes for the server that are ready.
  std::string Take();
  // The client does not wait for bytes of the server: it has sent its message, it has failed, or
  // its bytes were damaged, which the server may answer or not.
  bool done() const { return sent_ || failed_ || damaged_; }
  // The handshake succeeded, as far as this side knows.
  bool connected() const { return sent_; }

 private:
  std::string Spoil(std::string bytes);

  const Damage damage_;
  std::shared_ptr<SSL_CTX> context_;
  std::unique_ptr<SSL, void (*)(SSL*)> session_;
  BIO* const from_server_;  // the session owns both
  BIO* const to_server_;
  size_t taken_ = 0;
  bool sent_ = false;
  bool failed_ = false;
  bool damaged_ = false;
  bool ended_ = false;
};

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_ACCESS_DAMAGED_TLS_CLIENT_H_
