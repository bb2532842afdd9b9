// One stream of a watch, from its opening to its end. It is read one message at a time.
#ifndef COHORT_CLIENT_RENDEZVOUS_CALL_CHANGE_STREAM_ATTEMPT_H_
#define COHORT_CLIENT_RENDEZVOUS_CALL_CHANGE_STREAM_ATTEMPT_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/threads/mutex.h"
#include "client/rendezvous/call/connection/connection_impl.h"
#include "client/rendezvous/call/connection/stubs.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"

namespace cohort::client {

// The key of a stream's initial metadata that names the start of the coordinator.
inline constexpr char kIncarnationKey[] = "cohort-server-incarnation";

// Thread-safe. It lives until gRPC is done with it.
template <typename Changes>
class ChangeStreamAttempt final : public grpc::ClientReadReactor<typename Changes::Response> {
 public:
  using Request = typename Changes::Request;
  using Response = typename Changes::Response;

  class Owner {
   public:
    virtual ~Owner() = default;
    // The coordinator has taken the request. `incarnation` names its start; empty: not known.
    virtual void OnOpen(const ChangeStreamAttempt* attempt, const std::string& incarnation) = 0;
    // Returns whether to read the next message at once. Otherwise ReadOn does.
    virtual bool OnMessage(const ChangeStreamAttempt* attempt, Response& response) = 0;
    virtual void OnEnd(const ChangeStreamAttempt* attempt, const grpc::Status& status) = 0;
  };

  ChangeStreamAttempt(std::weak_ptr<Owner> owner, std::shared_ptr<ConnectionImpl> connection,
                      Request request)
      : owner_(std::move(owner)),
        connection_(std::move(connection)),
        request_(std::move(request)) {}

  // `self` owns this. Once, also after Cancel.
  void Start(std::shared_ptr<ChangeStreamAttempt> self) {
    self_ = std::move(self);
    Changes::Open(connection_->stubs(), &context_, &request_, this);
    // Reads begin outside of gRPC's reactions, too.
    this->AddHold();
    this->StartCall();
  }

  // Reads the next message, after OnMessage returned false.
  void ReadOn() {
    {
      MutexLock lock(&mutex_);
      if (released_ || reading_) return;
      reading_ = true;
    }
    response_.Clear();
    this->StartRead(&response_);
  }

  void Cancel() {
    {
      MutexLock lock(&mutex_);
      cancelled_ = true;
    }
    context_.TryCancel();
    Release();
  }

  // The first read begins here: gRPC does not keep the order of this reaction and those of reads.
  void OnReadInitialMetadataDone(bool ok) override {
    const auto owner = owner_.lock();
    if (!ok || owner == nullptr) {
      SetReading(false);
      return owner == nullptr ? Cancel() : Release();
    }
    const auto& metadata = context_.GetServerInitialMetadata();
    const auto it = metadata.find(kIncarnationKey);
    owner->OnOpen(this, it == metadata.end()
                            ? std::string()
                            : std::string(it->second.data(), it->second.size()));
    this->StartRead(&response_);
  }

  void OnReadDone(bool ok) override {
    SetReading(false);
    const auto owner = owner_.lock();
    if (owner == nullptr) return Cancel();
    const bool read_on = ok && owner->OnMessage(this, response_);
    bool over = !ok;
    {
      MutexLock lock(&mutex_);
      over = over || cancelled_;
    }
    if (over) return Release();
    if (read_on) ReadOn();
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<ChangeStreamAttempt> self = std::move(self_);
    if (const auto owner = owner_.lock()) owner->OnEnd(this, status);
  }

 private:
  void SetReading(bool reading) {
    MutexLock lock(&mutex_);
    reading_ = reading;
  }

  // Lets gRPC end the stream, unless a read is under way, which does so at its end.
  void Release() {
    {
      MutexLock lock(&mutex_);
      if (released_ || reading_) return;
      released_ = true;
    }
    this->RemoveHold();
  }

  const std::weak_ptr<Owner> owner_;
  const std::shared_ptr<ConnectionImpl> connection_;
  const Request request_;
  grpc::ClientContext context_;
  Response response_;
  std::shared_ptr<ChangeStreamAttempt> self_;

  Mutex mutex_;
  bool reading_ ABSL_GUARDED_BY(mutex_) = true;  // or waits for the initial metadata
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_CALL_CHANGE_STREAM_ATTEMPT_H_
