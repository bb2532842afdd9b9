#include "worker/daemon/sessions/attached_rank.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cohort/v1/attach.pb.h"
#include "worker/group/connections/transfer_connections.h"

namespace cohort::worker {

absl::StatusOr<std::shared_ptr<ClientRank>> AttachedRank::Join(RankMembershipOptions options,
                                                               Notifier notifier) {
  const std::string tenant = options.membership.connection.tenant;
  const absl::Duration timeout = options.bootstrap.timeout;
  std::shared_ptr<AttachedRank> entry(
      new AttachedRank(options.membership.cancellation, std::move(notifier)));
  entry->tenant_ = tenant;
  options.membership.report_tensors = [reporter = entry->reporter_] { return reporter->Report(); };
  entry->reporter_->Start([entry = entry.get()] { return entry->LookAtRecord(); });
  COHORT_ASSIGN_OR_RETURN(entry->membership_, RankMembership::Join(std::move(options)));
  COHORT_ASSIGN_OR_RETURN(Connections connections, entry->membership_->Connect(timeout));
  MutexLock lock(&entry->membership_mutex_);
  entry->Keep(std::move(connections));
  return entry;
}

AttachedRank::~AttachedRank() {
  reporter_->Stop();
  if (membership_ != nullptr) membership_->StopWatching();
}

void AttachedRank::Keep(Connections connections) {
  const client::ProcessGroup& member = membership_->process_group();
  GroupFacts facts;
  facts.tenant = tenant_;
  facts.group = member.group();
  facts.generation = member.generation();
  facts.rank = member.rank();
  facts.world_size = member.world_size();
  facts.attached = true;
  facts.paths = connections.paths;
  facts.machines = connections.machines;
  facts.why_not = connections.why_not;
  connections_ = std::move(connections);
  const int64_t generation = facts.generation;
  SetFacts(std::move(facts));
  RankMembership::Callbacks callbacks;
  callbacks.on_end = [this, generation](const std::string& cause) { NoteEnd(generation, cause); };
  callbacks.on_left = [this, generation](int rank, const std::string& cause) {
    NoteLeft(generation, rank, cause);
  };
  membership_->Notify(std::move(callbacks));
}

absl::Status AttachedRank::Rejoin(absl::Duration timeout) {
  MutexLock lock(&membership_mutex_);
  if (left_) return absl::AbortedError("the group has been left");
  connections_.reset();
  COHORT_ASSIGN_OR_RETURN(Connections connections, membership_->Rejoin(timeout));
  Keep(std::move(connections));
  return absl::OkStatus();
}

void AttachedRank::Abort(absl::string_view cause) {
  // Sockets that were not sent close when this rank leaves or rejoins. The client, or its
  // death, closes the others.
  const GroupFacts facts = this->facts();
  const std::string why = absl::StrCat("rank ", facts.rank, " aborted: ", cause);
  NoteEnd(facts.generation, why);
  membership_->EndForAll(why);
}

void AttachedRank::Leave(absl::string_view reason) {
  MutexLock lock(&membership_mutex_);
  left_ = true;
  connections_.reset();
  membership_->StopWatching();
  membership_->process_group().Leave(reason).IgnoreError();
}

absl::Status AttachedRank::SendToClient(const shm::LocalSocket& client, TensorMemory flight_record,
                                        Instant deadline) {
  MutexLock lock(&membership_mutex_);
  if (!connections_.has_value()) {
    return absl::FailedPreconditionError(
        "this generation of the group was already sent to the client");
  }
  if (flight_record.data != nullptr &&
      flight_record.bytes < static_cast<int64_t>(FlightRecorder::MemoryBytes())) {
    return absl::InvalidArgumentError(absl::StrCat("a flight record has ",
                                                   FlightRecorder::MemoryBytes(), " bytes, not ",
                                                   flight_record.bytes));
  }
  {
    MutexLock record_lock(&record_mutex_);
    flight_record_ = std::move(flight_record);
  }
  const Connections connections = *std::move(connections_);
  connections_.reset();
  v1::AttachAnswer answer;
  answer.set_text("the group follows");
  // An incomplete transfer is useless: the client gives up, and its session ends.
  client.Send(answer.SerializeAsString(), {}, deadline).IgnoreError();
  SendConnections(connections, client, deadline).IgnoreError();
  return absl::OkStatus();
}

std::vector<FlightEntry> AttachedRank::ReadFlightRecord() const {
  MutexLock lock(&record_mutex_);
  if (flight_record_.data == nullptr) return {};
  return FlightRecorder::Read(flight_record_.data);
}

TensorWaitReporter::Look AttachedRank::LookAtRecord() const {
  MutexLock lock(&record_mutex_);
  if (flight_record_.data == nullptr) return {};
  return {FlightRecorder::Read(flight_record_.data),
          FlightRecorder::ReadWaits(flight_record_.data, WaitLog::kRanks, WaitLog::kRanks)};
}

std::vector<WaitedFor> AttachedRank::ReadWaits() const {
  const int size = facts().world_size;
  MutexLock lock(&record_mutex_);
  if (flight_record_.data == nullptr) return {};
  return FlightRecorder::ReadWaits(flight_record_.data, size, kMostWaits);
}

}  // namespace cohort::worker
