#include "client/parallel/queue/message_queue.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/text/printable.h"
#include "client/parallel/queue/connections/handshake.h"
#include "client/parallel/queue/queue_ends.h"
#include "client/parallel/queue/ring/wire_text.h"
#include "client/rendezvous/call/cancellation.h"
#include "cohort/v1/queue.pb.h"

namespace cohort::parallel {
namespace {

// The part of the join timeout that remains for a rank that fails to tell why.
constexpr absl::Duration kLastWord = absl::Seconds(2);
constexpr size_t kMostErrorBytes = 1024;

// The queues that one call of all ranks creates.
struct Plan {
  std::string kind;          // as text for errors; the same on all ranks
  bool writes = false;       // this rank writes
  bool alone = false;        // ... and there is no other rank to read
  std::vector<int> reads;    // the writers that this rank reads
  std::vector<int> readers;  // the ranks that read this rank's queue
};

struct Ends {
  std::unique_ptr<WriterQueue> own;
  std::vector<std::unique_ptr<MessageQueue>> read;  // as Plan::reads
};

absl::Status AsStatus(const v1::QueueOffer& offer, int rank) {
  if (offer.code() == 0) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(offer.code()),
                      absl::StrCat("rank ", rank, ": ", Printable(offer.error())));
}

void Put(const absl::Status& status, v1::QueueOffer* offer) {
  if (status.ok() || offer->code() != 0) return;
  offer->set_code(static_cast<int>(status.code()));
  offer->set_error(WireText(status.message(), kMostErrorBytes));
}

// "10.0.0.4" of "tcp 10.0.0.4:4123" and "tls 10.0.0.4:4123"; empty for other paths.
std::string HostOfPath(absl::string_view path) {
  if (!absl::ConsumePrefix(&path, "tcp ") && !absl::ConsumePrefix(&path, "tls ")) return "";
  const size_t colon = path.rfind(':');
  return colon == absl::string_view::npos ? "" : std::string(path.substr(0, colon));
}

// Creates the queues of a group's ranks, step by step.
class QueueBootstrap {
 public:
  QueueBootstrap(client::Group& group, Plan plan, const QueueOptions& options)
      : group_(group),
        plan_(std::move(plan)),
        options_(options),
        deadline_(options.join_timeout == absl::InfiniteDuration()
                      ? absl::InfiniteFuture()
                      : Clock::Steady().Now() +
                            std::max(options.join_timeout, absl::Milliseconds(1))) {}

  absl::StatusOr<Ends> Run(absl::Status own) {
    if (own.ok()) own = MakeOwn();
    COHORT_RETURN_IF_ERROR(Exchange(own));
    COHORT_RETURN_IF_ERROR(CheckSameQueue());
    std::set<int> unserved;
    absl::Status reached = Reach(&unserved);
    COHORT_RETURN_IF_ERROR(Exchange(reached, unserved));
    // A reader that is on this host but cannot map the memory is rare, so streams are served on
    // request.
    std::set<int> wanted;
    for (const v1::QueueOffer& offer : offers_) {
      wanted.insert(offer.needs_stream().begin(), offer.needs_stream().end());
    }
    if (wanted.empty()) return std::move(ends_);
    absl::Status served;
    if (wanted.count(group_.rank()) != 0) served = ends_.own->Listen();
    COHORT_RETURN_IF_ERROR(Exchange(served));
    reached = Reach(&unserved);
    COHORT_RETURN_IF_ERROR(Exchange(reached));
    return std::move(ends_);
  }

 private:
  std::string Name(int writer) const {
    return absl::StrCat("the queue of rank ", writer, " in group \"", group_.name(), "\"");
  }

  absl::Status MakeOwn() {
    if (!plan_.writes) return absl::OkStatus();
    const int rank = group_.rank();
    const std::string& host = group_.hosts()[static_cast<size_t>(rank)];
    COHORT_ASSIGN_OR_RETURN(ends_.own, WriterQueue::Make(Name(rank), absl::StrCat("rank ", rank),
                                                         plan_.alone, options_));
    const bool far = std::any_of(plan_.readers.begin(), plan_.readers.end(), [&](int reader) {
      return group_.hosts()[static_cast<size_t>(reader)] != host;
    });
    return far ? ends_.own->Listen() : absl::OkStatus();
  }

  // Sends every rank's state to every rank. If a rank has failed, it fails on all ranks alike.
  absl::Status Exchange(const absl::Status& own, const std::set<int>& needs_stream = {}) {
    v1::QueueOffer offer;
    Put(own, &offer);
    offer.set_kind(plan_.kind);
    offer.set_handle(ends_.own != nullptr ? ends_.own->handle() : options_.external_writer);
    offer.mutable_needs_stream()->Add(needs_stream.begin(), needs_stream.end());
    client::CallOptions call;
    call.timeout = std::max(deadline_ - Clock::Steady().Now(), absl::Milliseconds(1));
    std::optional<client::CancellationScope> scope;
    if (options_.cancellation != nullptr) scope.emplace(*options_.cancellation);
    COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> objects,
                            group_.AllGatherObjects(offer.SerializeAsString(), call));
    offers_.assign(objects.size(), {});
    for (size_t rank = 0; rank < objects.size(); ++rank) {
      if (!offers_[rank].ParseFromString(objects[rank])) {
        return absl::InvalidArgumentError(
            absl::StrCat("rank ", rank, " calls something else than the creation of a queue"));
      }
    }
    for (size_t rank = 0; rank < offers_.size(); ++rank) {
      COHORT_RETURN_IF_ERROR(AsStatus(offers_[rank], static_cast<int>(rank)));
    }
    return absl::OkStatus();
  }

  absl::Status CheckSameQueue() const {
    for (size_t rank = 1; rank < offers_.size(); ++rank) {
      if (offers_[rank].kind() != offers_[0].kind()) {
        return absl::InvalidArgumentError(absl::StrCat("ranks make different queues: rank 0 ",
                                                       offers_[0].kind(), ", rank ", rank, " ",
                                                       offers_[rank].kind()));
      }
      if (!options_.external_writer.empty() && offers_[rank].handle() != offers_[0].handle()) {
        return absl::InvalidArgumentError(
            absl::StrCat("ranks 0 and ", rank, " have handles of different queues"));
      }
    }
    return absl::OkStatus();
  }

  // Opens the queues that are not open yet. A writer that can be reached only by a stream, and
  // serves none, is no error in the first round: the second one tries it again.
  absl::Status Reach(std::set<int>* unserved) {
    const bool last = !unserved->empty();
    unserved->clear();
    ends_.read.resize(plan_.reads.size());
    const Instant limit = std::max(deadline_ - kLastWord,
                                   Clock::Steady().Now() + (deadline_ - Clock::Steady().Now()) / 2);
    for (size_t i = 0; i < plan_.reads.size(); ++i) {
      if (ends_.read[i] != nullptr) continue;
      const int writer = plan_.reads[i];
      const bool external = writer < 0;
      COHORT_ASSIGN_OR_RETURN(
          const v1::QueueHandle handle,
          ParseHandle(external ? options_.external_writer
                               : offers_[static_cast<size_t>(writer)].handle()));
      ReaderQueue::Route route;
      if (!external) {
        const auto at = static_cast<size_t>(writer);
        route.memory = group_.hosts()[at] == group_.hosts()[static_cast<size_t>(group_.rank())];
        route.reached_at = HostOfPath(group_.paths()[at]);
      }
      bool no_stream = false;
      absl::StatusOr<std::unique_ptr<ReaderQueue>> queue = ReaderQueue::Open(
          handle, absl::StrCat("rank ", group_.rank()), route, options_, limit, &no_stream);
      if (queue.ok()) {
        ends_.read[i] = *std::move(queue);
      } else if (no_stream && !external && !last) {
        unserved->insert(writer);
      } else {
        return queue.status();
      }
    }
    return absl::OkStatus();
  }

  client::Group& group_;
  const Plan plan_;
  const QueueOptions& options_;
  const Instant deadline_;
  Ends ends_;
  std::vector<v1::QueueOffer> offers_;  // of the last exchange
};

std::string RingOptionsText(const QueueOptions& options) {
  return absl::StrCat(" with a ring of ", options.blocks, " times ", options.block_bytes,
                      " bytes for values up to ", options.max_value_bytes);
}

absl::Status CheckRank(const client::Group& group, absl::string_view option, int rank) {
  if (rank >= 0 && rank < group.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(option, " ", rank, " is no rank of a group of ", group.size()));
}

std::vector<int> AllBut(int rank, int size) {
  std::vector<int> result;
  for (int other = 0; other < size; ++other) {
    if (other != rank) result.push_back(other);
  }
  return result;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MessageQueue>> MessageQueue::Create(client::Group& group,
                                                                   const QueueOptions& options) {
  absl::Status own = options.failure.ok() ? CheckOptions(options) : options.failure;
  Plan plan;
  if (!options.external_writer.empty()) {
    if (own.ok()) own = ParseHandle(options.external_writer).status();
    plan.kind = "reads a queue that a process outside of the group writes";
    plan.reads = {-1};
  } else {
    if (own.ok()) own = CheckRank(group, "writer_rank", options.writer_rank);
    plan.kind = absl::StrCat("has rank ", options.writer_rank, " write one queue",
                             RingOptionsText(options));
    plan.writes = group.rank() == options.writer_rank;
    plan.alone = group.size() == 1;
    plan.readers = AllBut(options.writer_rank, group.size());
    if (!plan.writes) plan.reads = {options.writer_rank};
  }
  COHORT_ASSIGN_OR_RETURN(Ends ends, QueueBootstrap(group, std::move(plan), options).Run(own));
  if (ends.own != nullptr) return std::unique_ptr<MessageQueue>(std::move(ends.own));
  return std::move(ends.read[0]);
}

absl::StatusOr<SingleReaderQueues> CreateSingleReaderQueues(client::Group& group, int reader_rank,
                                                            const QueueOptions& given) {
  QueueOptions options = given;
  options.external_writer.clear();
  absl::Status own = options.failure.ok() ? CheckOptions(options) : options.failure;
  if (own.ok()) own = CheckRank(group, "reader_rank", reader_rank);
  Plan plan;
  plan.kind =
      absl::StrCat("has rank ", reader_rank, " read a queue of each", RingOptionsText(options));
  plan.writes = true;
  plan.readers = {reader_rank};
  if (group.rank() == reader_rank) plan.reads = AllBut(-1, group.size());
  COHORT_ASSIGN_OR_RETURN(Ends ends, QueueBootstrap(group, std::move(plan), options).Run(own));
  return SingleReaderQueues{std::move(ends.own), std::move(ends.read)};
}

absl::StatusOr<std::unique_ptr<MessageQueue>> MessageQueue::CreateExternal(
    const std::string& name, const QueueOptions& options) {
  COHORT_ASSIGN_OR_RETURN(
      std::unique_ptr<WriterQueue> queue,
      WriterQueue::Make(absl::StrCat("the queue \"", name, "\""),
                        absl::StrCat("the writer of \"", name, "\""), false, options));
  return queue;
}

absl::StatusOr<std::unique_ptr<MessageQueue>> MessageQueue::Open(const std::string& handle,
                                                                 const std::string& reader,
                                                                 const QueueOptions& options) {
  COHORT_RETURN_IF_ERROR(CheckOptions(options));
  COHORT_ASSIGN_OR_RETURN(const v1::QueueHandle parsed, ParseHandle(handle));
  bool no_stream = false;
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<ReaderQueue> queue,
                          ReaderQueue::Open(parsed, reader, ReaderQueue::Route(), options,
                                            options.join_timeout == absl::InfiniteDuration()
                                                ? absl::InfiniteFuture()
                                                : Clock::Steady().Now() + options.join_timeout,
                                            &no_stream));
  return queue;
}

}  // namespace cohort::parallel
