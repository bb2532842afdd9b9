#include "client/cli/testing/fake_clients.h"

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cohort::cli {
namespace {

template <typename... Arguments>
void Record(FakeClients& fake, const char* method, const Arguments&... arguments) {
  const std::vector<std::string> words = {absl::StrCat(arguments)...};
  {
    MutexLock lock(&fake.mutex);
    fake.calls.push_back(absl::StrCat(method, "(", absl::StrJoin(words, ", "), ")"));
  }
  const auto away = fake.away.find(method);
  if (away != fake.away.end()) fake.connection.on_away(away->second);
}

// Takes the next answer, if it is set and is an error.
absl::Status Next(FakeClients& fake) {
  if (fake.next.empty()) return absl::OkStatus();
  absl::Status status = std::move(fake.next.front());
  fake.next.pop_front();
  return status;
}

class FakeConnection : public client::Connection {
 public:
  explicit FakeConnection(client::ConnectionOptions options) : options_(std::move(options)) {}
  const client::ConnectionOptions& options() const override { return options_; }

 private:
  const client::ConnectionOptions options_;
};

class FakeAdmin : public client::AdminClient {
 public:
  explicit FakeAdmin(FakeClients& fake) : fake_(fake) {}

  absl::StatusOr<std::vector<client::GroupInfo>> ListGroups() override {
    Record(fake_, "ListGroups");
    return Answer(fake_.groups);
  }
  absl::StatusOr<client::GroupInfo> GetGroup(absl::string_view group) override {
    Record(fake_, "GetGroup", group);
    if (absl::Status status = Next(fake_); !status.ok()) return status;
    return Answer(fake_.groups.empty() ? client::GroupInfo() : fake_.groups[0]);
  }
  absl::Status WatchGroup(absl::string_view group, int64_t from_revision,
                          const std::function<bool(const client::GroupEvent&)>& on_event,
                          absl::Duration timeout) override {
    Record(fake_, "WatchGroup", group, from_revision, absl::FormatDuration(timeout));
    for (const client::GroupEvent& event : fake_.group_events) {
      if (!on_event(event)) return absl::OkStatus();
    }
    if (absl::Status status = Next(fake_); !status.ok()) return status;
    return fake_.error;
  }
  // Not used by the tool.
  std::unique_ptr<client::GroupWatcher> NewGroupWatcher(absl::string_view,
                                                        const client::WatcherOptions&) override {
    std::abort();
  }
  absl::StatusOr<client::WhoIsMissingReport> WhoIsMissing(absl::string_view group,
                                                          absl::Duration timeout) override {
    Record(fake_, "WhoIsMissing", group, absl::FormatDuration(timeout));
    if (!fake_.who_is_missing_error.ok()) return fake_.who_is_missing_error;
    const auto of_group = fake_.who_is_missing_of.find(std::string(group));
    return Answer(of_group == fake_.who_is_missing_of.end() ? fake_.who_is_missing
                                                            : of_group->second);
  }
  absl::StatusOr<std::vector<client::ParkedCall>> DumpWaits(absl::string_view group) override {
    Record(fake_, "DumpWaits", group);
    return Answer(fake_.parked);
  }
  absl::StatusOr<std::map<std::string, int64_t>> Limits(
      const std::map<std::string, int64_t>& set) override {
    Record(fake_, "Limits", absl::StrJoin(set, " ", absl::PairFormatter("=")));
    for (const auto& [name, value] : set) fake_.limits[name] = value;
    return Answer(fake_.limits);
  }
  absl::StatusOr<client::DrainResult> Drain(bool release_waiters, bool resume) override {
    Record(fake_, "Drain", release_waiters, resume);
    return Answer(fake_.drain);
  }
  absl::Status Evict(absl::string_view group, absl::string_view member,
                     absl::string_view reason) override {
    Record(fake_, "Evict", group, member, reason);
    return fake_.error;
  }
  absl::Status CloseGroup(absl::string_view group, absl::string_view reason) override {
    Record(fake_, "CloseGroup", group, reason);
    return fake_.error;
  }
  absl::StatusOr<client::ServerStats> Stats() override {
    Record(fake_, "Stats");
    if (!fake_.stats_error.ok()) return fake_.stats_error;
    return Answer(fake_.stats);
  }
  absl::StatusOr<client::AccessAnswer> CheckAccess(absl::string_view method,
                                                   const std::vector<std::string>& names) override {
    Record(fake_, "CheckAccess", method, absl::StrJoin(names, ","));
    return Answer(fake_.access);
  }

 private:
  template <typename T>
  absl::StatusOr<T> Answer(const T& value) {
    if (!fake_.error.ok()) return fake_.error;
    return value;
  }

  FakeClients& fake_;
};

class FakeWorker : public client::WorkerClient {
 public:
  FakeWorker(FakeClients& fake, std::string address) : fake_(fake), address_(std::move(address)) {}

  absl::StatusOr<client::WorkerInfo> Describe() override {
    if (!fake_.error.ok()) return fake_.error;
    return fake_.worker;
  }
  absl::StatusOr<std::vector<client::FlightRecord>> ReadFlightRecords(
      const std::string& group) override {
    Record(fake_, "ReadFlightRecords", group);
    if (!fake_.error.ok()) return fake_.error;
    const auto own = fake_.flights_at.find(address_);
    if (own != fake_.flights_at.end()) return own->second;
    return fake_.flights;
  }

 private:
  FakeClients& fake_;
  const std::string address_;
};

class FakeStore : public client::StoreClient {
 public:
  FakeStore(FakeClients& fake, absl::string_view group) : fake_(fake), group_(group) {}

  // Not used by the tool.
  client::AsyncStoreClient& async() override { std::abort(); }
  absl::StatusOr<client::PutResult> Put(absl::string_view key, absl::string_view value,
                                        const client::PutOptions& options,
                                        absl::Duration timeout) override {
    Record(fake_, "Put", group_, key, value,
           options.expiration ? absl::FormatDuration(*options.expiration) : "-",
           options.expected_revision ? absl::StrCat(*options.expected_revision) : "-",
           absl::FormatDuration(timeout));
    return Answer(fake_.put);
  }
  absl::StatusOr<client::PutResult> MultiPut(const std::vector<client::PutEntry>& entries,
                                             std::optional<absl::Duration> expiration,
                                             absl::Duration timeout) override {
    std::string all;
    for (const client::PutEntry& entry : entries) {
      absl::StrAppend(&all, all.empty() ? "" : " ", entry.key, "=", entry.value);
      if (entry.expected_revision) absl::StrAppend(&all, "@", *entry.expected_revision);
      if (entry.expected_value) absl::StrAppend(&all, "?", *entry.expected_value);
    }
    Record(fake_, "MultiPut", group_, all, expiration ? absl::FormatDuration(*expiration) : "-",
           absl::FormatDuration(timeout));
    return Answer(fake_.put);
  }
  using client::StoreClient::Get;
  absl::StatusOr<client::GetResult> Get(const std::vector<std::string>& keys,
                                        const client::GetOptions& options,
                                        absl::Duration timeout) override {
    Record(fake_, "Get", group_, absl::StrJoin(keys, " "), absl::FormatDuration(options.wait),
           absl::FormatDuration(timeout));
    if (!options.queues.empty()) Record(fake_, "queues", absl::StrJoin(options.queues, " "));
    return Answer(fake_.get);
  }
  absl::StatusOr<client::RangeResult> Range(absl::string_view prefix, absl::string_view after, int,
                                            bool keys_only, bool, absl::Duration) override {
    Record(fake_, "Range", group_, prefix, after, keys_only);
    if (absl::Status status = Next(fake_); !status.ok()) return status;
    if (page_ < fake_.pages.size()) return Answer(fake_.pages[page_++]);
    return Answer(client::RangeResult());
  }
  absl::StatusOr<int64_t> Delete(absl::string_view key, bool prefix, absl::Duration) override {
    Record(fake_, "Delete", group_, key, prefix);
    return Answer(fake_.number);
  }
  absl::StatusOr<int64_t> Add(absl::string_view key, int64_t delta, absl::Duration) override {
    Record(fake_, "Add", group_, key, delta);
    return Answer(fake_.number);
  }
  absl::StatusOr<int64_t> Append(absl::string_view key, absl::string_view value,
                                 absl::Duration) override {
    Record(fake_, "Append", group_, key, value);
    return Answer(fake_.number);
  }
  absl::StatusOr<int64_t> QueuePush(absl::string_view queue, absl::string_view value,
                                    std::optional<absl::Duration> expiration,
                                    absl::Duration) override {
    Record(fake_, "QueuePush", group_, queue, value,
           expiration ? absl::FormatDuration(*expiration) : "-");
    return Answer(fake_.number);
  }
  absl::StatusOr<std::optional<client::QueueItem>> QueuePop(absl::string_view queue,
                                                            absl::Duration wait,
                                                            absl::Duration timeout) override {
    Record(fake_, "QueuePop", group_, queue, absl::FormatDuration(wait),
           absl::FormatDuration(timeout));
    return Answer(fake_.item);
  }
  absl::Status Watch(absl::string_view prefix, int64_t from_revision,
                     const std::function<bool(const client::KeyEvent&)>& on_event,
                     absl::Duration timeout) override {
    Record(fake_, "Watch", group_, prefix, from_revision, absl::FormatDuration(timeout));
    for (const client::KeyEvent& event : fake_.key_events) {
      if (!on_event(event)) return absl::OkStatus();
    }
    if (absl::Status status = Next(fake_); !status.ok()) return status;
    return fake_.error;
  }

 private:
  template <typename T>
  absl::StatusOr<T> Answer(const T& value) {
    if (!fake_.error.ok()) return fake_.error;
    return value;
  }

  FakeClients& fake_;
  const std::string group_;
  size_t page_ = 0;
};

// Implements only the methods that the tool calls.
class FakeGroup : public client::ProcessGroup {
 public:
  explicit FakeGroup(FakeClients& fake) : fake_(fake), options_(fake.join_options) {}

  const std::string& group() const override { return options_.group; }
  const std::string& member() const override { return options_.member; }
  int rank() const override { return *options_.rank; }
  int world_size() const override { return options_.world_size; }
  int64_t generation() const override { return 1; }
  int64_t revision() const override { return 1; }

  absl::Status Send(absl::string_view object, int dst, absl::string_view tag,
                    absl::Duration) override {
    Record(fake_, "Send", object, dst, tag);
    return fake_.error;
  }
  absl::StatusOr<std::string> Receive(int src, absl::string_view tag, absl::Duration) override {
    Record(fake_, "Receive", src, tag);
    return Answer(fake_.received.bytes);
  }
  absl::StatusOr<client::ReceivedObject> ReceiveAny(absl::string_view tag,
                                                    absl::Duration) override {
    Record(fake_, "ReceiveAny", tag);
    return Answer(fake_.received);
  }
  absl::StatusOr<std::string> Broadcast(absl::string_view object, int root,
                                        const client::RoundOptions& options) override {
    Record(fake_, "Broadcast", object, root, options.name);
    Wait(options);
    return Answer(root == rank() ? std::string(object) : fake_.received.bytes);
  }
  absl::StatusOr<client::ObjectList> AllGather(absl::string_view object,
                                               const client::RoundOptions& options) override {
    Record(fake_, "AllGather", object, options.name);
    Wait(options);
    return Answer(client::ObjectList(fake_.objects));
  }
  absl::StatusOr<client::ObjectList> Gather(absl::string_view object, int root,
                                            const client::RoundOptions& options) override {
    Record(fake_, "Gather", object, root, options.name);
    Wait(options);
    return Answer(root == rank() ? client::ObjectList(fake_.objects) : client::ObjectList());
  }
  absl::Status Barrier(const client::RoundOptions& options, client::RoundReport* report) override {
    Record(fake_, "Barrier", options.name);
    Wait(options);
    *report = fake_.round;
    return fake_.error;
  }
  absl::Status Leave(absl::string_view reason) override {
    Record(fake_, "Leave", reason);
    return absl::OkStatus();
  }

  // Not used by the tool.
  client::AsyncProcessGroup& async() override { std::abort(); }
  absl::StatusOr<client::GroupInfo> Describe() override { return Unused(); }
  absl::StatusOr<client::WhoIsMissingReport> WhoIsMissing() override { return Unused(); }
  absl::StatusOr<std::string> Scatter(const std::vector<std::string>&, int,
                                      const client::RoundOptions&) override {
    return Unused();
  }
  absl::StatusOr<int64_t> ExpireData(std::optional<absl::Duration>) override { return Unused(); }
  absl::StatusOr<client::GroupStats> Stats() override { return Unused(); }
  absl::Status CancelBarrier(absl::string_view, absl::string_view) override { return Unused(); }
  absl::StatusOr<client::VoteResult> Vote(int64_t, client::VoteOp,
                                          const client::RoundOptions&) override {
    return Unused();
  }
  absl::StatusOr<std::vector<RankRange>> AgreeAlive(absl::Duration) override { return Unused(); }
  absl::Status PublishUniqueIds(absl::string_view, const std::vector<std::string>&) override {
    return Unused();
  }
  absl::StatusOr<std::vector<std::string>> FetchUniqueIds(absl::string_view,
                                                          absl::Duration) override {
    return Unused();
  }
  absl::Status ReportInit(absl::string_view, InitPhase, absl::string_view) override {
    return Unused();
  }
  void ReportProgress(int64_t, absl::string_view) override {}
  absl::Status ReportError(absl::string_view, bool, const std::vector<RankRange>&) override {
    return Unused();
  }
  absl::Status Rejoin(absl::Duration) override { return Unused(); }
  absl::StatusOr<client::ViewResult> ProposeView(const std::vector<RankRange>&,
                                                 const std::vector<std::string>&, absl::Duration,
                                                 bool) override {
    return Unused();
  }
  absl::StatusOr<client::ViewResult> AckView(int64_t, bool, absl::string_view,
                                             absl::Duration) override {
    return Unused();
  }
  absl::Status Close(absl::string_view) override { return Unused(); }

 private:
  static absl::Status Unused() { return absl::UnimplementedError("not used by the tool"); }

  template <typename T>
  absl::StatusOr<T> Answer(const T& value) {
    if (!fake_.error.ok()) return fake_.error;
    return value;
  }

  void Wait(const client::RoundOptions& options) {
    if (options.on_waiting && !fake_.waiting.missing.empty()) options.on_waiting(fake_.waiting);
  }

  FakeClients& fake_;
  const client::ProcessGroupOptions options_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<client::Connection>> FakeClients::Connect(
    const client::ConnectionOptions& options) {
  connection = options;
  return std::shared_ptr<client::Connection>(std::make_shared<FakeConnection>(options));
}

std::unique_ptr<client::AdminClient> FakeClients::Admin(std::shared_ptr<client::Connection>,
                                                        absl::Duration timeout) {
  admin_timeout = timeout;
  return std::make_unique<FakeAdmin>(*this);
}

std::unique_ptr<client::StoreClient> FakeClients::Store(std::shared_ptr<client::Connection>,
                                                        absl::string_view group) {
  return std::make_unique<FakeStore>(*this, group);
}

absl::StatusOr<std::unique_ptr<client::ProcessGroup>> FakeClients::Join(
    const client::ProcessGroupOptions& options) {
  join_options = options;
  Record(*this, "Join", options.group, *options.rank, options.world_size, options.member);
  if (options.on_waiting && !waiting_to_join.missing.empty()) options.on_waiting(waiting_to_join);
  if (on_join) on_join();
  if (!join_error.ok()) return join_error;
  return std::unique_ptr<client::ProcessGroup>(std::make_unique<FakeGroup>(*this));
}

std::unique_ptr<client::WorkerClient> FakeClients::Worker(const std::string& address,
                                                          absl::Duration timeout) {
  Record(*this, "Worker", address, absl::FormatDuration(timeout));
  return std::make_unique<FakeWorker>(*this, address);
}

client::ErrorInfo FakeClients::GetErrorInfo(const absl::Status&) { return error_info; }

}  // namespace cohort::cli
