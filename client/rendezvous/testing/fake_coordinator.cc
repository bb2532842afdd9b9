// One file, though long: its services share one state, and each method is a few lines.
#include "client/rendezvous/testing/fake_coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/incarnation_hash.h"
#include "base/rpc/grpc_deadline.h"
#include "client/rendezvous/report/report_codec.h"
#include "client/rendezvous/session/blob_transfer.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"

namespace cohort::client {
namespace {

// How often a parked call looks whether its caller went away: the synchronous API cannot tell it.
constexpr absl::Duration kLook = absl::Milliseconds(10);

template <typename Request>
auto WaitOf(const Request& request, int) -> decltype(request.wait(), absl::Duration()) {
  return FromProto(request.wait());
}
template <typename Request>
auto WaitOf(const Request& request, int) -> decltype(request.round(), absl::Duration()) {
  return FromProto(request.round().wait());
}
template <typename Request>
absl::Duration WaitOf(const Request&, long) {  // NOLINT: the worse overload
  return absl::ZeroDuration();
}

template <typename Request>
auto NumberOf(const Request& request, int) -> decltype(request.number(), int64_t()) {
  return request.number();
}
template <typename Request>
auto NumberOf(const Request& request, int) -> decltype(request.round(), int64_t()) {
  return request.round().number();
}
template <typename Request>
int64_t NumberOf(const Request&, long) {  // NOLINT: the worse overload
  return 0;
}

}  // namespace

class FakeCoordinator::Group final : public v1::GroupService::Service {
 public:
  explicit Group(FakeCoordinator* fake) : fake_(fake) {}
  grpc::Status Join(grpc::ServerContext* context, const v1::JoinRequest* request,
                    v1::JoinResponse* response) override {
    {
      MutexLock lock(&fake_->mutex_);
      fake_->joined_.set_name(request->member());
      fake_->joined_.set_incarnation_hash(IncarnationHash(request->incarnation()));
    }
    if (grpc::Status status = fake_->Enter("Join", context, *request); !status.ok()) return status;
    response->set_outcome(v1::JOIN_OUTCOME_JOINED);
    response->set_session(std::string(16, 's'));
    response->set_rank(request->rank());
    response->set_world_size(request->spec().max_members());
    response->set_revision(10);
    MutexLock lock(&fake_->mutex_);
    response->set_generation(fake_->generation_);
    ToProto(fake_->lease_, response->mutable_lease());
    response->set_max_inline_bytes(fake_->max_inline_bytes_);
    return grpc::Status::OK;
  }
  grpc::Status Leave(grpc::ServerContext* context, const v1::LeaveRequest* request,
                     v1::LeaveResponse*) override {
    return fake_->Enter("Leave", context, *request);
  }
  grpc::Status KeepAlive(grpc::ServerContext* context, const v1::KeepAliveRequest* request,
                         v1::KeepAliveResponse* response) override {
    response->set_generation(request->scope().generation());
    response->set_state(v1::GROUP_STATE_ACTIVE);
    return fake_->Enter("KeepAlive", context, *request);
  }
  grpc::Status ReportError(grpc::ServerContext* context, const v1::ReportErrorRequest* request,
                           v1::ReportErrorResponse*) override {
    return fake_->Enter("ReportError", context, *request);
  }
  grpc::Status GetGroup(grpc::ServerContext* context, const v1::GetGroupRequest* request,
                        v1::GetGroupResponse* response) override {
    response->mutable_group()->set_revision(1000);
    {
      MutexLock lock(&fake_->mutex_);
      response->mutable_group()->set_state(fake_->complete_ ? v1::GROUP_STATE_ACTIVE
                                                            : v1::GROUP_STATE_FORMING);
      *response->mutable_group()->add_members() = fake_->joined_;
    }
    return fake_->Enter("GetGroup", context, *request);
  }
  grpc::Status WatchGroup(grpc::ServerContext* context, const v1::WatchGroupRequest* request,
                          grpc::ServerWriter<v1::WatchGroupResponse>* writer) override {
    SeenCall call{"WatchGroup", request->scope()};
    call.offset = request->from_revision();
    if (grpc::Status status = fake_->Note(context, std::move(call)); !status.ok()) return status;
    size_t next = 0;
    int reports_asked = 0;
    {
      MutexLock lock(&fake_->mutex_);
      context->AddInitialMetadata("cohort-server-incarnation", fake_->incarnation_);
    }
    writer->SendInitialMetadata();
    {
      MutexLock lock(&fake_->mutex_);
      ++fake_->open_watches_;
      reports_asked = fake_->reports_asked_;
    }
    while (!context->IsCancelled()) {
      v1::WatchGroupResponse response;
      {
        MutexLock lock(&fake_->mutex_);
        if (fake_->stopping_) break;
        if (std::exchange(reports_asked, fake_->reports_asked_) != fake_->reports_asked_) {
          response.set_report(true);
        }
        for (; next < fake_->events_.size(); ++next) {
          if (fake_->events_[next].revision() > request->from_revision()) {
            response.set_revision(fake_->events_[next].revision());
            if (fake_->events_[next].kind() == v1::GROUP_EVENT_KIND_UNSPECIFIED) continue;
            *response.add_events() = fake_->events_[next];
          }
        }
        if (response.revision() == 0 && !response.report()) {
          fake_->mutex_.AwaitWithTimeout(absl::Condition(&fake_->stopping_), kLook);
        }
      }
      if (response.revision() > 0 || response.report()) writer->Write(response);
    }
    MutexLock lock(&fake_->mutex_);
    --fake_->open_watches_;
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "stopping");
  }
  grpc::Status Vote(grpc::ServerContext* context, const v1::VoteRequest* request,
                    v1::VoteResponse* response) override {
    response->set_value(request->value());
    return fake_->Round("Vote", context, request, response);
  }

 private:
  FakeCoordinator* const fake_;
};

class FakeCoordinator::Messaging final : public v1::MessagingService::Service {
 public:
  explicit Messaging(FakeCoordinator* fake) : fake_(fake) {}
  grpc::Status Send(grpc::ServerContext* context, const v1::SendRequest* request,
                    v1::SendResponse*) override {
    SeenCall call{"Send", request->scope()};
    call.object = request->payload().inline_();
    return fake_->Note(context, std::move(call));
  }
  grpc::Status Receive(grpc::ServerContext* context, const v1::ReceiveRequest* request,
                       v1::ReceiveResponse* response) override {
    if (grpc::Status status = fake_->Enter("Receive", context, *request); !status.ok()) {
      return status;
    }
    MutexLock lock(&fake_->mutex_);
    response->set_outcome(v1::RECEIVE_OUTCOME_RECEIVED);
    response->mutable_payload()->set_inline_("object");
    response->set_source(request->source());
    response->set_receipt(fake_->receipt_);
    return grpc::Status::OK;
  }
  grpc::Status Barrier(grpc::ServerContext* context, const v1::BarrierRequest* request,
                       v1::BarrierResponse* response) override {
    return fake_->Round("Barrier", context, request, response);
  }
  grpc::Status AllGather(grpc::ServerContext* context, const v1::AllGatherRequest* request,
                         v1::AllGatherResponse* response) override {
    if (request->payload().has_blob()) {
      if (!fake_->HasBlob(request->payload())) {
        fake_->Note(context, SeenCall{"AllGather", request->scope()});
        return grpc::Status(grpc::StatusCode::NOT_FOUND, "blob is not there");
      }
      *response->mutable_values()->mutable_blob() = request->payload().blob();
      response->mutable_values()->add_sizes_bytes(request->payload().blob().size_bytes());
    } else {
      response->mutable_values()->set_inline_(request->payload().inline_());
      response->mutable_values()->add_sizes_bytes(
          static_cast<int64_t>(request->payload().inline_().size()));
    }
    return fake_->Round("AllGather", context, request, response);
  }
  grpc::Status Upload(grpc::ServerContext* context, grpc::ServerReader<v1::UploadRequest>* reader,
                      v1::UploadResponse* response) override {
    std::string bytes;
    v1::UploadRequest first;
    v1::UploadRequest part;
    while (reader->Read(&part)) {
      if (bytes.empty()) first = part;
      if (part.offset() != static_cast<int64_t>(bytes.size())) {
        return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "gap");
      }
      bytes += part.data();
    }
    if (grpc::Status status = fake_->Note(context, SeenCall{"Upload", first.scope()});
        !status.ok()) {
      return status;
    }
    if (Crc32(bytes) != first.crc32() || first.size_bytes() != static_cast<int64_t>(bytes.size())) {
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "checksum");
    }
    MutexLock lock(&fake_->mutex_);
    response->set_blob(++fake_->last_blob_);
    fake_->blobs_[fake_->last_blob_] = std::move(bytes);
    return grpc::Status::OK;
  }
  grpc::Status Download(grpc::ServerContext* context, const v1::DownloadRequest* request,
                        grpc::ServerWriter<v1::DownloadResponse>* writer) override {
    SeenCall call{"Download", request->scope()};
    call.offset = request->offset();
    if (grpc::Status status = fake_->Note(context, std::move(call)); !status.ok()) return status;
    std::string bytes;
    int64_t stop = -1;
    {
      MutexLock lock(&fake_->mutex_);
      bytes = fake_->blobs_[request->blob()];
      if (fake_->damaged_ >= 0) bytes[fake_->damaged_] ^= 1;
      stop = std::exchange(fake_->break_after_, -1);
    }
    for (int64_t offset = request->offset(); offset < static_cast<int64_t>(bytes.size());) {
      if (stop >= 0 && offset >= stop) {
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "broke");
      }
      v1::DownloadResponse part;
      part.set_offset(offset);
      part.set_data(bytes.substr(offset, 256 << 10));
      offset += static_cast<int64_t>(part.data().size());
      writer->Write(part);
    }
    return grpc::Status::OK;
  }

 private:
  FakeCoordinator* const fake_;
};

class FakeCoordinator::Admin final : public v1::AdminService::Service {
 public:
  explicit Admin(FakeCoordinator* fake) : fake_(fake) {}
  grpc::Status WhoIsMissing(grpc::ServerContext* context, const v1::WhoIsMissingRequest* request,
                            v1::WhoIsMissingResponse* response) override {
    if (grpc::Status status = fake_->Enter("WhoIsMissing", context, *request); !status.ok()) {
      return status;
    }
    MutexLock lock(&fake_->mutex_);
    *response->add_waits() = fake_->open_wait_;
    return grpc::Status::OK;
  }

 private:
  FakeCoordinator* const fake_;
};

FakeCoordinator::FakeCoordinator()
    : group_(std::make_unique<Group>(this)),
      messaging_(std::make_unique<Messaging>(this)),
      admin_(std::make_unique<Admin>(this)) {
  Start();
}

FakeCoordinator::~FakeCoordinator() { Stop(); }

std::string FakeCoordinator::address() const { return absl::StrCat("127.0.0.1:", port_); }

void FakeCoordinator::Start() {
  {
    MutexLock lock(&mutex_);
    stopping_ = false;
  }
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address(), grpc::InsecureServerCredentials(), &port_);
  builder.SetMaxReceiveMessageSize(8 << 20);
  builder.RegisterService(group_.get());
  builder.RegisterService(messaging_.get());
  builder.RegisterService(admin_.get());
  server_ = builder.BuildAndStart();
}

void FakeCoordinator::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (server_ == nullptr) return;
  server_->Shutdown(GrpcDeadline(absl::ZeroDuration()));
  server_->Wait();
  server_.reset();
}

void FakeCoordinator::FailNext(const std::string& method, std::vector<grpc::Status> statuses) {
  MutexLock lock(&mutex_);
  failures_[method].assign(statuses.begin(), statuses.end());
}
void FakeCoordinator::EndRounds(std::vector<v1::RoundResult> results) {
  MutexLock lock(&mutex_);
  results_.assign(results.begin(), results.end());
}
void FakeCoordinator::Hold(const std::string& method, bool hold) {
  MutexLock lock(&mutex_);
  held_[method] = hold;
}
void FakeCoordinator::set_lease(absl::Duration lease) {
  MutexLock lock(&mutex_);
  lease_ = lease;
}
void FakeCoordinator::set_max_inline_bytes(int64_t max_inline_bytes) {
  MutexLock lock(&mutex_);
  max_inline_bytes_ = max_inline_bytes;
}
void FakeCoordinator::set_complete(bool complete) {
  MutexLock lock(&mutex_);
  complete_ = complete;
}

void FakeCoordinator::set_generation(int64_t generation) {
  MutexLock lock(&mutex_);
  generation_ = generation;
}
void FakeCoordinator::set_receipt(int64_t receipt) {
  MutexLock lock(&mutex_);
  receipt_ = receipt;
}
void FakeCoordinator::set_missing(const std::string& operation, const v1::MissingReport& missing) {
  MutexLock lock(&mutex_);
  open_wait_.set_operation(operation);
  *open_wait_.mutable_missing() = missing;
}
void FakeCoordinator::DamageDownloads(int64_t offset) {
  MutexLock lock(&mutex_);
  damaged_ = offset;
}
void FakeCoordinator::BreakFirstDownloadAfter(int64_t bytes) {
  MutexLock lock(&mutex_);
  break_after_ = bytes;
}
void FakeCoordinator::DropBlobs() {
  MutexLock lock(&mutex_);
  blobs_.clear();
}
void FakeCoordinator::set_incarnation(const std::string& incarnation) {
  MutexLock lock(&mutex_);
  incarnation_ = incarnation;
}
void FakeCoordinator::PublishEvent(v1::GroupEvent event) {
  MutexLock lock(&mutex_);
  events_.push_back(std::move(event));
}

void FakeCoordinator::AskForReport() {
  MutexLock lock(&mutex_);
  ++reports_asked_;
}

bool FakeCoordinator::AwaitOpenWatches(int count) const {
  const auto as_many = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return open_watches_ == count;
  };
  MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&as_many), absl::Seconds(10));
}

std::vector<SeenCall> FakeCoordinator::Seen(const std::string& method) const {
  MutexLock lock(&mutex_);
  std::vector<SeenCall> calls;
  for (const SeenCall& call : seen_) {
    if (call.method == method) calls.push_back(call);
  }
  return calls;
}

bool FakeCoordinator::AwaitSeen(const std::string& method, size_t count) const {
  const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return static_cast<size_t>(std::count_if(seen_.begin(), seen_.end(), [&](const SeenCall& call) {
             return call.method == method;
           })) >= count;
  };
  MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(10));
}

grpc::Status FakeCoordinator::Note(grpc::ServerContext* context, SeenCall call) {
  call.time_left = TimeLeft(context->raw_deadline());
  const std::string method = call.method;
  MutexLock lock(&mutex_);
  seen_.push_back(std::move(call));
  while (held_[method] && !stopping_ && !context->IsCancelled()) {
    const auto released = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || !held_[method];
    };
    mutex_.AwaitWithTimeout(absl::Condition(&released), kLook);
  }
  if (stopping_) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "stopping");
  std::deque<grpc::Status>& failures = failures_[method];
  if (failures.empty()) return grpc::Status::OK;
  grpc::Status status = failures.front();
  failures.pop_front();
  return status;
}

template <typename Request>
grpc::Status FakeCoordinator::Enter(const std::string& method, grpc::ServerContext* context,
                                    const Request& request) {
  SeenCall call{method, request.scope(), WaitOf(request, 0)};
  call.number = NumberOf(request, 0);
  return Note(context, std::move(call));
}

v1::RoundResult FakeCoordinator::NextResult(int64_t number) {
  MutexLock lock(&mutex_);
  v1::RoundResult result;
  if (!results_.empty()) {
    result = results_.front();
    results_.pop_front();
  } else {
    result.set_outcome(v1::ROUND_OUTCOME_RELEASED);
    result.set_next_number(number + 1);
    result.set_receipt(receipt_);
  }
  result.set_number(number);
  return result;
}

template <typename Request, typename Response>
grpc::Status FakeCoordinator::Round(const std::string& method, grpc::ServerContext* context,
                                    Request* request, Response* response) {
  if (grpc::Status status = Enter(method, context, *request); !status.ok()) return status;
  *response->mutable_result() = NextResult(NumberOf(*request, 0));
  return grpc::Status::OK;
}

bool FakeCoordinator::HasBlob(const v1::Payload& payload) const {
  MutexLock lock(&mutex_);
  return blobs_.count(payload.blob().blob()) != 0;
}

}  // namespace cohort::client
