// The options and results of a StoreClient.
#ifndef COHORT_CLIENT_RENDEZVOUS_STORE_TYPES_H_
#define COHORT_CLIENT_RENDEZVOUS_STORE_TYPES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace cohort::client {

struct KeyValue {
  std::string key;
  std::string value;
  int64_t revision = 0;
  int64_t created_revision = 0;
  std::optional<absl::Duration> expires_in;
};

struct PutOptions {
  std::optional<absl::Duration> expiration;
  // Write only if the key's revision is this (0: only if absent).
  std::optional<int64_t> expected_revision;
  // Write only if the key's value is this. An absent key counts as empty.
  std::optional<std::string> expected_value;
};
// One key of a MultiPut, with its own conditions.
struct PutEntry {
  std::string key;
  std::string value;
  std::optional<int64_t> expected_revision;
  std::optional<std::string> expected_value;
};
struct PutResult {
  bool written = false;
  int64_t revision = 0;             // of the last key written
  std::optional<KeyValue> current;  // not written: that of the first key that differs
};
struct GetOptions {
  // How long to block until all keys exist and all queues have a value; 0: not at all.
  absl::Duration wait = absl::ZeroDuration();
  int64_t newer_than = 0;  // the keys exist with a larger revision
  std::vector<std::string> queues;
  // An absent key counts as existing while the queue of its name has a value, like in PyTorch's
  // wait.
  bool or_queue = false;
};
struct QueueLength {
  std::string queue;
  int64_t length = 0;  // values that no consumer has taken
};
struct GetResult {
  std::vector<KeyValue> values;
  std::vector<std::string> missing_keys;  // if the wait ended first
  int64_t revision = 0;
  // The queues of GetOptions::queues in their order, also empty ones, and then those of `or_queue`.
  std::vector<QueueLength> queue_lengths;
};
struct RangeOptions {
  std::string after;  // RangeResult::next of the page before; empty: the first page
  int page_size = 100;
  bool keys_only = false;
  bool count_only = false;
};
struct RangeResult {
  std::vector<KeyValue> values;
  std::string next;  // pass as `after` for the next page; empty: no more
  int64_t count = 0;
  int64_t revision = 0;
};
struct QueueItem {
  std::string value;
  int64_t sequence = 0;
};
struct KeyEvent {
  bool deleted = false;
  bool expired = false;
  KeyValue key_value;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_STORE_TYPES_H_
