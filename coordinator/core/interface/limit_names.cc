#include "coordinator/core/interface/limit_names.h"

#include <map>

#include "absl/strings/str_cat.h"

namespace cohort::coordinator {
namespace {

// Sets of ranks are bitmaps.
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
      {"max_tenant_groups", &Limits::max_tenant_groups},
      {"max_tenant_members", &Limits::max_tenant_members},
      {"max_tenant_bytes_held", &Limits::max_tenant_bytes_held},
      {"max_tenant_waiters", &Limits::max_tenant_waiters},
      {"max_tenant_streams", &Limits::max_tenant_streams},
      {"max_tenant_requests_per_second", &Limits::max_tenant_requests_per_second},
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
  static_assert(sizeof(Limits) == 28 * sizeof(int64_t), "list every field of Limits here");
  return *kNames;
}

absl::string_view CountedBy(absl::string_view name) {
  static const auto* const kTexts = new std::map<absl::string_view, absl::string_view>{
      {"max_groups", "groups"},
      {"max_members", "rank slots of a group"},
      {"max_candidates", "members of a group that wait to be added to a view"},
      {"max_inline_bytes",
       "bytes of a value in a request, and of the values of an answer together"},
      {"max_object_bytes", "bytes of a value"},
      {"max_bytes_held", "bytes of everything that callers make the coordinator keep, but incomplete requests"},
      {"max_group_bytes_held", "bytes of the values of a group, or of a tenant's own store"},
      {"max_tenant_groups", "groups of a tenant"},
      {"max_tenant_members", "members of all groups of a tenant"},
      {"max_tenant_bytes_held", "bytes that the coordinator keeps for a tenant"},
      {"max_tenant_waiters", "waiting calls of a tenant"},
      {"max_tenant_streams", "watches, uploads and downloads of a tenant"},
      {"max_tenant_requests_per_second",
       "requests of a tenant; above this, it is read more slowly while other tenants call"},
      {"max_mailbox_depth", "undelivered objects of one (source, destination, tag)"},
      {"max_unacknowledged", "delivered objects that a member has not acknowledged"},
      {"max_send_window", "numbered sends of one mailbox that wait for an earlier one"},
      {"max_ordered_mailboxes", "(source, destination, tag) with numbered sends in a group"},
      {"max_round_names", "names of rounds in a group"},
      {"max_open_rounds", "open rounds of one name"},
      {"max_waiters_per_group", "waiting calls of a group"},
      {"max_keys", "keys of a group's store, or of a tenant's own"},
      {"max_value_bytes", "bytes of a key's value or of a queue's entry"},
      {"max_queue_depth", "entries of a queue"},
      {"max_event_log", "events kept for watchers of a group or of a store"},
      {"max_operations_kept", "first answers kept for repeats in a group"},
      {"max_unique_id_names", "names of unique ids in a generation"},
      {"max_blobs", "uploaded values of a group that no call has used yet"},
      {"max_closed_names", "closed groups whose generation is remembered"},
  };
  const auto text = kTexts->find(name);
  return text == kTexts->end() ? absl::string_view() : text->second;
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
