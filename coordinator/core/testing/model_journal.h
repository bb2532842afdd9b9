// A journal as a table in memory, with group commit: appended records are durable only after
// Commit.
#ifndef COHORT_COORDINATOR_CORE_TESTING_MODEL_JOURNAL_H_
#define COHORT_COORDINATOR_CORE_TESTING_MODEL_JOURNAL_H_

#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/core/interface/record.h"

namespace cohort::coordinator {

class ModelJournal {
 public:
  void Append(std::vector<Record> records) { pending_.push_back(std::move(records)); }

  // Makes the oldest `steps` appended steps durable.
  void Commit(size_t steps) {
    for (size_t i = 0; i < steps; ++i) {
      for (Record& record : pending_[i]) Apply(std::move(record));
    }
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(steps));
  }
  // The process died: drops all records that are not durable.
  void DropPending() { pending_.clear(); }

  std::vector<Record> Rows() const {
    std::vector<Record> rows;
    for (const auto& [name, value] : table_) {
      rows.push_back(Record{std::get<0>(name), std::get<1>(name), std::get<2>(name), value});
    }
    return rows;
  }
  size_t size() const { return table_.size(); }
  size_t pending_steps() const { return pending_.size(); }

 private:
  using Name = std::tuple<GroupKey, RecordKind, std::string>;

  void Apply(Record record) {
    if (record.whole_kind) {
      auto it = table_.lower_bound(Name(record.key, record.kind, ""));
      while (it != table_.end() && std::get<0>(it->first) == record.key &&
             std::get<1>(it->first) == record.kind) {
        it = table_.erase(it);
      }
      return;
    }
    Name name(std::move(record.key), record.kind, std::move(record.id));
    if (record.value.has_value()) {
      table_.insert_or_assign(std::move(name), Detached(*std::move(record.value)));
    } else {
      table_.erase(name);
    }
  }

  // A table on a disk does not count in the ledger of the process that wrote it.
  static Payload Detached(const Payload& payload) {
    return payload.has_value() ? Payload(payload.bytes(), nullptr) : Payload();
  }
  static RecordValue Detached(RecordValue value) {
    if (auto* object = std::get_if<ObjectRecord>(&value)) {
      object->payload = Detached(object->payload);
    } else if (auto* round = std::get_if<RoundEndRecord>(&value)) {
      for (Payload& payload : round->values) payload = Detached(payload);
    } else if (auto* key = std::get_if<KeyRecord>(&value)) {
      key->value = Detached(key->value);
    } else if (auto* item = std::get_if<QueueItemRecord>(&value)) {
      item->value = Detached(item->value);
    }
    return value;
  }

  std::vector<std::vector<Record>> pending_;
  std::map<Name, RecordValue> table_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_TESTING_MODEL_JOURNAL_H_
