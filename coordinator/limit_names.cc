#include "coordinator/limit_names.h"

#include "absl/strings/str_cat.h"

namespace cohort::coordinator {
namespace {

// A group takes memory for each seat before anyone has come.
constexpr int64_t kMostMembers = int64_t{1} << 20;
// No protobuf message passes 2 GiB.
constexpr int64_t kMostBytesInMessage = int64_t{1} << 30;

}  // namespace

const std::vector<LimitName>& LimitNames() {
  static const auto* const kNames = new std::vector<LimitName>{
      {"max_groups", &Limits::max_groups},
      {"max_members", &Limits::max_members, kMostMembers},
      {"max_candidates", &Limits::max_candidates},
      {"max_inline_bytes", &Limits::max_inline_bytes, kMostBytesInMessage},
      {"max_object_bytes", &Limits::max_object_bytes},
      {"max_bytes_held", &Limits::max_bytes_held},
      {"max_group_bytes_held", &Limits::max_group_bytes_held},
      {"max_mailbox_depth", &Limits::max_mailbox_depth},
      {"max_send_window", &Limits::max_send_window},
      {"max_ordered_mailboxes", &Limits::max_ordered_mailboxes},
      {"max_unacknowledged", &Limits::max_unacknowledged},
      {"max_round_names", &Limits::max_round_names},
      {"max_open_rounds", &Limits::max_open_rounds},
      {"max_waiters_per_group", &Limits::max_waiters_per_group},
      {"max_keys", &Limits::max_keys},
      {"max_value_bytes", &Limits::max_value_bytes, kMostBytesInMessage},
      {"max_queue_depth", &Limits::max_queue_depth},
      {"max_event_log", &Limits::max_event_log},
      {"max_operations_kept", &Limits::max_operations_kept},
      {"max_unique_id_names", &Limits::max_unique_id_names},
      {"max_blobs", &Limits::max_blobs},
      {"max_closed_names", &Limits::max_closed_names},
  };
  // A field that is not listed could be neither set nor seen.
  static_assert(sizeof(Limits) == 22 * sizeof(int64_t), "list every field of Limits here");
  return *kNames;
}

absl::Status SetLimit(absl::string_view name, int64_t value, Limits* limits) {
  for (const LimitName& limit : LimitNames()) {
    if (name != limit.name) continue;
    if (value < 1 || value > limit.largest) {
      return absl::InvalidArgumentError(
          absl::StrCat("limit ", name, " must be from 1 to ", limit.largest, ", not ", value));
    }
    limits->*limit.field = value;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("there is no limit \"", name, "\""));
}

}  // namespace cohort::coordinator
