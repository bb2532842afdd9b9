// The handshake between a queue's writer and a reader.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_CONNECTIONS_HANDSHAKE_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_CONNECTIONS_HANDSHAKE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cohort/v1/queue.pb.h"

namespace cohort::parallel {

inline constexpr uint32_t kQueueVersion = 2;

// A token for a new queue, from the kernel.
std::string NewToken();

// The first message of a reader with the handle. `name` may be any bytes.
v1::QueueHello HelloTo(const v1::QueueHandle& handle, const std::string& name);
// OK: the reader may read. Errors: INVALID_ARGUMENT (another version), PERMISSION_DENIED (another
// token).
absl::Status CheckHello(const v1::QueueHello& hello, const v1::QueueHandle& handle);

v1::QueueWelcome WelcomeOf(const v1::QueueHandle& handle, uint64_t position);
// Errors: INVALID_ARGUMENT (another version, or a ring that cannot be).
absl::Status CheckWelcome(const v1::QueueWelcome& welcome);

// Errors: INVALID_ARGUMENT (the bytes are no handle of this version).
absl::StatusOr<v1::QueueHandle> ParseHandle(absl::string_view bytes);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_CONNECTIONS_HANDSHAKE_H_
