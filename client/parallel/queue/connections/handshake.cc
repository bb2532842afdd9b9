#include "client/parallel/queue/connections/handshake.h"

#include "absl/strings/str_cat.h"
#include "base/id128.h"
#include "base/rpc/random_bits.h"
#include "client/parallel/queue/ring/ring_layout.h"
#include "client/parallel/queue/ring/wire_text.h"

namespace cohort::parallel {
namespace {

constexpr size_t kTokenBytes = Id128::kBytes;
constexpr int64_t kMostCapacity = int64_t{1} << 40;

// Compares in the same time for any difference.
bool SameToken(const std::string& a, const std::string& b) {
  if (a.size() != kTokenBytes || b.size() != kTokenBytes) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < kTokenBytes; ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace

std::string NewToken() { return RandomBits().ToBytes(); }

v1::QueueHello HelloTo(const v1::QueueHandle& handle, const std::string& name) {
  v1::QueueHello hello;
  hello.set_version(kQueueVersion);
  hello.set_token(handle.token());
  hello.set_name(WireText(name, kMostNameBytes));
  return hello;
}

absl::Status CheckHello(const v1::QueueHello& hello, const v1::QueueHandle& handle) {
  if (hello.version() != kQueueVersion) {
    return absl::InvalidArgumentError(absl::StrCat("the reader speaks version ", hello.version(),
                                                   " of queues, the writer ", kQueueVersion));
  }
  if (!SameToken(hello.token(), handle.token())) {
    return absl::PermissionDeniedError("the token is not the token of this queue");
  }
  return absl::OkStatus();
}

v1::QueueWelcome WelcomeOf(const v1::QueueHandle& handle, uint64_t position) {
  v1::QueueWelcome welcome;
  welcome.set_version(kQueueVersion);
  welcome.set_capacity_bytes(handle.capacity_bytes());
  welcome.set_max_value_bytes(handle.max_value_bytes());
  welcome.set_position(position);
  return welcome;
}

absl::Status CheckWelcome(const v1::QueueWelcome& welcome) {
  if (welcome.version() != kQueueVersion || welcome.capacity_bytes() <= 0 ||
      welcome.capacity_bytes() > kMostCapacity || welcome.max_value_bytes() <= 0 ||
      welcome.position() % kRecordAlign != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the writer speaks version ", welcome.version(),
                                                   " of queues, or of a ring of ",
                                                   welcome.capacity_bytes(), " bytes"));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::QueueHandle> ParseHandle(absl::string_view bytes) {
  v1::QueueHandle handle;
  if (!handle.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ||
      handle.token().size() != kTokenBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("these ", bytes.size(), " bytes are not the handle of a queue"));
  }
  if (handle.version() != kQueueVersion) {
    return absl::InvalidArgumentError(absl::StrCat("the queue's handle is of version ",
                                                   handle.version(), ", not ", kQueueVersion));
  }
  return handle;
}

}  // namespace cohort::parallel
