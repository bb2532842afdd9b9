#include "tests/fuzz/access/damaged_tls_client.h"

#include <openssl/bio.h>

#include <algorithm>
#include <utility>

#include "absl/time/time.h"

namespace cohort::coordinator::fuzz {
namespace {

std::shared_ptr<SSL_CTX> ContextOf(const TlsFiles& files, int version) {
  // A context of its own: the version is not for others.
  std::shared_ptr<SSL_CTX> context =
      TlsContext::Load(files, TlsSide::kClient).value()->Current(absl::UnixEpoch());
  SSL_CTX_set_min_proto_version(context.get(), version);
  SSL_CTX_set_max_proto_version(context.get(), version);
  return context;
}

}  // namespace

DamagedTlsClient::DamagedTlsClient(const TlsFiles& files, int version, const Damage& damage)
    : damage_(damage),
      context_(ContextOf(files, version)),
      session_(SSL_new(context_.get()), SSL_free),
      from_server_(BIO_new(BIO_s_mem())),
      to_server_(BIO_new(BIO_s_mem())) {
  SSL_set_bio(session_.get(), from_server_, to_server_);
  SSL_set_connect_state(session_.get());
  SSL_set1_host(session_.get(), "localhost");
}

void DamagedTlsClient::Run(absl::string_view message) {
  if (sent_ || failed_) return;
  const int result = SSL_do_handshake(session_.get());
  if (result == 1) {
    size_t written = 0;
    if (!message.empty()) {
      SSL_write_ex(session_.get(), message.data(), message.size(), &written);
    }
    sent_ = true;
  } else if (SSL_get_error(session_.get(), result) != SSL_ERROR_WANT_READ) {
    failed_ = true;
  }
  TakeTlsError();
}

void DamagedTlsClient::Give(absl::string_view bytes) {
  BIO_write(from_server_, bytes.data(), static_cast<int>(bytes.size()));
}

std::string DamagedTlsClient::Take() {
  std::string bytes(BIO_ctrl_pending(to_server_), '\0');
  if (bytes.empty() || ended_) return "";
  BIO_read(to_server_, &bytes[0], static_cast<int>(bytes.size()));
  return Spoil(std::move(bytes));
}

std::string DamagedTlsClient::Spoil(std::string bytes) {
  const size_t start = std::exchange(taken_, taken_ + bytes.size());
  if (damage_.kind == Damage::Kind::kNothing || damage_.at < start || damage_.at >= taken_) {
    return bytes;
  }
  damaged_ = true;
  const size_t at = damage_.at - start;
  const size_t length = std::min<size_t>(size_t{damage_.value} + 1, bytes.size() - at);
  switch (damage_.kind) {
    case Damage::Kind::kNothing:
      break;
    case Damage::Kind::kFlip:
      bytes[at] = static_cast<char>(bytes[at] ^ static_cast<char>(damage_.value));
      break;
    case Damage::Kind::kInsert:
      bytes.insert(at, damage_.value, static_cast<char>(damage_.value));
      break;
    case Damage::Kind::kDrop:
      bytes.erase(at, length);
      break;
    case Damage::Kind::kTwice:
      bytes.insert(at, bytes.substr(at, length));
      break;
    case Damage::Kind::kEnd:
      bytes.erase(at);
      ended_ = true;
      break;
  }
  return bytes;
}

}  // namespace cohort::coordinator::fuzz
