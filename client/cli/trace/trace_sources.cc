#include "client/cli/trace/trace_sources.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/host_name.h"
#include "base/port/socket/listen_address.h"
#include "base/status_macros.h"
#include "base/threads/thread.h"
#include "client/cli/output/format.h"
#include "client/collective/remote/worker_client.h"

namespace cohort::cli {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(10);
// A worker that does not answer keeps one of them until the end.
constexpr size_t kThreads = 64;
constexpr char kDefaultTenant[] = "default";

// A worker, and the result of asking it.
struct Asked {
  std::vector<std::string> addresses;  // the best first
  std::string answered;                // one of them
  absl::StatusOr<std::vector<client::FlightRecord>> records;
};

// The addresses of a member that can be reached from here, its own host's first.
std::vector<std::string> ReachableFrom(const client::Member& member, const std::string& here) {
  std::vector<std::string> local;
  std::vector<std::string> others;
  for (const std::string& text : member.addresses) {
    const absl::StatusOr<ListenAddress> address = ParseListenAddress(text);
    const bool is_local = address.ok() && address->is_loopback();
    (is_local ? local : others).push_back(text);
  }
  if (member.host != here) return others;
  local.insert(local.end(), others.begin(), others.end());
  return local;
}

// Finds the records, step by step.
class Finder {
 public:
  Finder(Context& context, const TraceRequest& request)
      : context_(context),
        request_(request),
        deadline_(context.environment().clock->Now() + context.TimeoutOr(kTimeout)) {}

  absl::StatusOr<TraceSources> Find() {
    COHORT_RETURN_IF_ERROR(AskCoordinator());
    for (const std::string& file : request_.files) COHORT_RETURN_IF_ERROR(ReadOne(file));
    ChooseWorkers();
    AskAll();
    for (Asked& worker : workers_) {
      if (!worker.records.ok()) continue;
      for (client::FlightRecord& record : *worker.records) Keep(std::move(record), worker.answered);
    }
    return Result();
  }

 private:
  absl::Status AskCoordinator() {
    if (request_.offline) return absl::OkStatus();
    const auto ask = [this]() -> absl::StatusOr<client::GroupInfo> {
      COHORT_ASSIGN_OR_RETURN(auto admin, context_.Admin());
      return admin->GetGroup(request_.group);
    };
    absl::StatusOr<client::GroupInfo> group = ask();
    if (group.ok()) {
      group_ = *std::move(group);
      return absl::OkStatus();
    }
    if (request_.workers.empty() && request_.files.empty()) return group.status();
    // Records of a dead group, or without the coordinator, are worth as much.
    context_.printer().Remark(
        absl::StrCat("cohort: the coordinator does not list the members of group ", request_.group,
                     ": ", group.status().message()));
    deadline_ = context_.environment().clock->Now() + context_.TimeoutOr(kTimeout);
    return absl::OkStatus();
  }

  absl::Status ReadOne(const std::string& file) {
    COHORT_ASSIGN_OR_RETURN(const std::string text, ReadPayload(context_, file));
    absl::StatusOr<std::vector<client::FlightRecord>> records = client::ParseFlightRecords(text);
    if (!records.ok()) {
      return absl::Status(records.status().code(),
                          absl::StrCat(file, ": ", records.status().message()));
    }
    std::set<std::string> others;
    bool found = false;
    for (client::FlightRecord& record : *records) {
      others.insert(record.group);
      found |= Keep(std::move(record), file);
    }
    if (found) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat(file, ": no record of group ", request_.group, " there",
                                            others.empty() ? "" : "; they are of ",
                                            absl::StrJoin(others, ", ")));
  }

  // Returns false if the record is of another group.
  bool Keep(client::FlightRecord record, const std::string& from) {
    const auto tenant = [](const std::string& name) {
      return name.empty() ? kDefaultTenant : name;
    };
    if (record.group != request_.group ||
        tenant(record.tenant) != tenant(context_.options().tenant)) {
      return false;
    }
    const auto kept = records_.find(record.rank);
    const auto age = [](const client::FlightRecord& of) {
      return std::make_pair(of.generation, of.taken);
    };
    if (kept != records_.end()) {
      const bool later = age(record) > age(kept->second);
      // The same rank from two sources is expected; two processes in one generation are not.
      if (record.generation == kept->second.generation && record.pid != kept->second.pid) {
        context_.printer().Remark(absl::StrCat("cohort: rank ", record.rank, " is in ",
                                               sources_.from[record.rank], " and in ", from,
                                               "; the later one counts"));
      }
      if (!later) return true;
    }
    sources_.from[record.rank] = from;
    records_[record.rank] = std::move(record);
    return true;
  }

  void ChooseWorkers() {
    for (const std::string& address : request_.workers) AddWorker({address});
    if (!request_.workers.empty() || !group_.has_value()) return;
    const std::string here = HostName();
    for (const client::Member& member : group_->members) {
      if (member.labels.count(std::string(client::kWorkerLabel)) == 0) continue;
      std::vector<std::string> addresses = ReachableFrom(member, here);
      if (!addresses.empty()) worker_of_[member.rank] = AddWorker(std::move(addresses));
    }
  }

  size_t AddWorker(std::vector<std::string> addresses) {
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (workers_[i].addresses == addresses) return i;
    }
    workers_.emplace_back();
    workers_.back().addresses = std::move(addresses);
    return workers_.size() - 1;
  }

  void AskAll() {
    std::atomic<size_t> next{0};
    const auto ask = [this, &next] {
      for (size_t at = next++; at < workers_.size(); at = next++) Ask(workers_[at]);
    };
    std::vector<std::thread> threads;
    for (size_t i = 0; i < std::min(kThreads, workers_.size()); ++i) {
      absl::StatusOr<std::thread> thread = StartThread("cohort-trace", ask);
      if (!thread.ok()) break;
      threads.push_back(*std::move(thread));
    }
    ask();  // the workers that no thread has taken
    for (std::thread& thread : threads) thread.join();
  }

  void Ask(Asked& worker) {
    std::vector<std::string> failures;
    for (const std::string& address : worker.addresses) {
      const absl::Duration left = deadline_ - context_.environment().clock->Now();
      if (left <= absl::ZeroDuration()) {
        failures.push_back(absl::StrCat("no time was left to ask the worker at ", address));
        break;
      }
      worker.answered = address;
      worker.records =
          context_.environment().clients->Worker(address, left)->ReadFlightRecords(request_.group);
      if (worker.records.ok()) return;
      failures.emplace_back(worker.records.status().message());
    }
    worker.records = absl::UnavailableError(absl::StrJoin(failures, "; "));
  }

  TraceSources Result() {
    if (group_.has_value()) {
      sources_.generation = group_->generation;
      sources_.world_size = group_->world_size;
    }
    // If the coordinator does not know the group, the ranks' records define it.
    for (const auto& [rank, record] : records_) {
      if (group_.has_value() || record.generation < sources_.generation) continue;
      sources_.generation = record.generation;
      sources_.world_size = record.world_size;
    }
    for (int rank = 0; rank < sources_.world_size; ++rank) {
      if (records_.count(rank) == 0) sources_.missing.push_back(Missing(rank));
    }
    for (auto& [rank, record] : records_) sources_.records.push_back(std::move(record));
    return std::move(sources_);
  }

  MissingRecord Missing(int rank) const {
    MissingRecord missing;
    missing.rank = rank;
    const client::Member* const member = MemberAt(rank);
    missing.who = FormatMember(rank, member == nullptr ? "" : member->name,
                               member == nullptr ? "" : member->host);
    missing.why = WhyNot(rank, member);
    return missing;
  }

  const client::Member* MemberAt(int rank) const {
    if (!group_.has_value()) return nullptr;
    for (const client::Member& member : group_->members) {
      if (member.rank == rank) return &member;
    }
    return nullptr;
  }

  std::string WhyNot(int rank, const client::Member* member) const {
    if (!request_.workers.empty()) return WhyNoneOfThose();
    if (!group_.has_value()) return "no --file has it, and no --worker was given";
    if (member == nullptr) return "no member has this rank";
    if (member->state == client::MemberState::kLost ||
        member->state == client::MemberState::kLeft) {
      return absl::StrCat("it is ", client::MemberStateName(member->state));
    }
    if (member->labels.count(std::string(client::kWorkerLabel)) == 0) {
      return "it lives in no worker that could be asked: its process can write its record "
             "(LocalGroup::ExportFlightRecord), for --file";
    }
    const auto worker = worker_of_.find(rank);
    if (worker == worker_of_.end()) {
      return absl::StrCat("its worker can be asked on ", member->host, " alone, at ",
                          absl::StrJoin(member->addresses, ", "),
                          ": --records there writes a file, for --file here");
    }
    const Asked& asked = workers_[worker->second];
    if (!asked.records.ok()) return std::string(asked.records.status().message());
    return absl::StrCat("the worker at ", asked.answered, " does not have it");
  }

  std::string WhyNoneOfThose() const {
    std::vector<std::string> failures;
    for (const Asked& worker : workers_) {
      if (!worker.records.ok()) failures.emplace_back(worker.records.status().message());
    }
    if (failures.empty()) return "no --worker has it";
    return absl::StrCat("no --worker that answered has it; ", absl::StrJoin(failures, "; "));
  }

  Context& context_;
  const TraceRequest& request_;
  Instant deadline_;
  std::optional<client::GroupInfo> group_;
  std::vector<Asked> workers_;
  std::map<int, size_t> worker_of_;  // by rank
  std::map<int, client::FlightRecord> records_;
  TraceSources sources_;
};

}  // namespace

absl::StatusOr<TraceSources> FindRecords(Context& context, const TraceRequest& request) {
  return Finder(context, request).Find();
}

}  // namespace cohort::cli
