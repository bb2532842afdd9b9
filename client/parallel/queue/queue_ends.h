// The two kinds of MessageQueue.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_QUEUE_ENDS_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_QUEUE_ENDS_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/threads/mutex.h"
#include "client/parallel/queue/connections/local_acceptor.h"
#include "client/parallel/queue/connections/stream_server.h"
#include "client/parallel/queue/message_queue.h"
#include "client/parallel/queue/ring/byte_source.h"
#include "client/parallel/queue/ring/record_reader.h"
#include "client/parallel/queue/ring/ring_writer.h"
#include "cohort/v1/queue.pb.h"

namespace cohort::parallel {

// Errors: INVALID_ARGUMENT, naming the option.
absl::Status CheckOptions(const QueueOptions& options);

class WriterQueue final : public MessageQueue {
 public:
  // `name` and `writer` are the texts for the queue and its writer in errors. `alone`: the queue
  // may never have a reader. Errors: as MessageQueue::CreateExternal.
  static absl::StatusOr<std::unique_ptr<WriterQueue>> Make(const std::string& name,
                                                           const std::string& writer, bool alone,
                                                           const QueueOptions& options);
  ~WriterQueue() override;

  // Serves streams from now on; a second call does nothing.
  absl::Status Listen();

  bool is_writer() const override { return true; }
  const std::string& name() const override { return handle_.name(); }
  std::string handle() const override { return handle_.SerializeAsString(); }
  std::string path() const override { return "self"; }
  absl::Status Enqueue(absl::string_view value, const QueueCall& call) override;
  absl::StatusOr<std::string> Dequeue(const QueueCall& call) override;
  absl::StatusOr<QueueView> AcquireView(const QueueCall& call) override;
  absl::StatusOr<std::string> Broadcast(absl::string_view value, const QueueCall& call) override;
  void Shutdown(absl::string_view reason) override { ring_->End(reason); }
  std::vector<QueueReader> readers() const override { return ring_->readers(); }
  std::vector<QueueDeparture> departures() const override { return ring_->departures(); }
  absl::Status AwaitReaders(int count, const QueueCall& call) override;

 private:
  void EndView() override {}  // a writer has no views
  WriterQueue(const QueueOptions& options, std::shared_ptr<RingWriter> ring, v1::QueueHandle handle)
      : options_(options), ring_(std::move(ring)), handle_(std::move(handle)) {}

  const QueueOptions options_;
  const std::shared_ptr<RingWriter> ring_;
  v1::QueueHandle handle_;
  std::unique_ptr<LocalAcceptor> acceptor_;
  std::unique_ptr<StreamServer> server_;
};

class ReaderQueue final : public MessageQueue {
 public:
  struct Route {
    bool memory = true;      // whether to try the writer's memory
    std::string reached_at;  // a host where the writer's process has been reached; or empty
  };
  // Errors: as MessageQueue::Open. `no_stream` is set if the error is UNAVAILABLE because the
  // writer serves no stream to try.
  static absl::StatusOr<std::unique_ptr<ReaderQueue>> Open(const v1::QueueHandle& handle,
                                                           const std::string& reader,
                                                           const Route& route,
                                                           const QueueOptions& options,
                                                           Instant deadline, bool* no_stream);
  ~ReaderQueue() override = default;

  bool is_writer() const override { return false; }
  const std::string& name() const override { return name_; }
  std::string handle() const override { return ""; }
  std::string path() const override { return source_->path(); }
  absl::Status Enqueue(absl::string_view value, const QueueCall& call) override;
  absl::StatusOr<std::string> Dequeue(const QueueCall& call) override;
  absl::StatusOr<QueueView> AcquireView(const QueueCall& call) override;
  absl::StatusOr<std::string> Broadcast(absl::string_view value, const QueueCall& call) override;
  void Shutdown(absl::string_view reason) override ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<QueueReader> readers() const override { return {}; }
  std::vector<QueueDeparture> departures() const override { return {}; }
  absl::Status AwaitReaders(int count, const QueueCall& call) override;

 private:
  ReaderQueue(const v1::QueueHandle& handle, const QueueOptions& options,
              std::unique_ptr<ByteSource> source);
  void EndView() override;
  // Errors: FAILED_PRECONDITION (a value is being read), CANCELLED (it was shut down).
  absl::Status Enter();
  void Exit();
  absl::Status WhyShut() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells the writer that a shut-down reader leaves. The last thread that reads does it: before
  // that, the writer must not overwrite the bytes that the thread looks at.
  void LeaveUnlessReading() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Explain(const absl::Status& status, const QueueCall& call) const;

  const std::string name_;
  const std::string writer_;
  const absl::Duration timeout_;
  const std::unique_ptr<ByteSource> source_;
  std::atomic<bool> busy_{false};
  RecordReader records_;  // only for the thread that set busy_
  bool left_ = false;     // only for the thread that set busy_
  std::atomic<bool> shut_{false};
  mutable Mutex mutex_;
  std::string shut_reason_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_QUEUE_ENDS_H_
