// The writer's end of one stream.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_CONNECTIONS_WRITER_STREAM_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_CONNECTIONS_WRITER_STREAM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/threads/mutex.h"
#include "client/parallel/queue/ring/ring_writer.h"
#include "cohort/v1/queue.pb.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

namespace cohort::parallel {

// Counts the streams, and those of them that are readers'. The rest have not said hello.
class StreamCount {
 public:
  void Add(int streams, int readers) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns false if the time has passed.
  bool AwaitNone(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);
  bool AwaitNoReaders(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  bool AwaitZero(const int& count, absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);

  Mutex mutex_;
  int streams_ ABSL_GUARDED_BY(mutex_) = 0;
  int readers_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A reader slot of the ring like any other. Its head is the position of the reader at the far end.
// So bytes on their way stay in the ring, and no second queue can grow. They are sent from their
// place in the ring.
//
// One thread at a time has the ticket to write or to finish: the one that changed `reader_sleeps`
// from 1 to 0. A thread with nothing to write sets it back to 1, and may not touch the reactor
// after that.
class WriterStream final : public std::enable_shared_from_this<WriterStream> {
 public:
  using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

  // The reactor owns itself. It ends when the reader goes or has received the end of the queue, or
  // has said no hello within `hello_timeout`.
  static Reactor* Start(std::shared_ptr<RingWriter> writer, const v1::QueueHandle& handle,
                        std::shared_ptr<StreamCount> count, absl::Duration hello_timeout,
                        grpc::CallbackServerContext* context);

 private:
  class StreamReactor;
  class StreamSlot;

  // `peer` as gRPC calls it.
  WriterStream(std::shared_ptr<RingWriter> writer, const v1::QueueHandle& handle,
               std::shared_ptr<StreamCount> count, const std::string& peer);

  // The reactor calls it for each message that it read. Returns false if the stream is over.
  bool OnRequest(const grpc::ByteBuffer& bytes);
  bool OnHello(const v1::QueueHello& hello);
  bool OnProgress(const v1::QueueProgress& progress);
  void OnHelloTimeout();
  // Ends the stream with `status`; the first status stays.
  void End(const absl::Status& status);

  bool TakeTicket() { return page_.reader_sleeps.exchange(0, std::memory_order_seq_cst) == 1; }
  // The thread that has the ticket calls it.
  void WriteOn();
  void FinishCall();

  const std::shared_ptr<RingWriter> writer_;
  const v1::QueueHandle handle_;
  const std::shared_ptr<StreamCount> count_;
  const std::string peer_;  // "10.0.0.4:4123"
  Reactor* reactor_ = nullptr;
  ReaderPage page_ = {};
  std::shared_ptr<StreamSlot> slot_;  // used by the thread that reads
  std::atomic<uint64_t> sent_{0};
  // Only for the thread that has the ticket.
  bool welcomed_ = false;
  bool end_sent_ = false;
  grpc::ByteBuffer message_;

  std::atomic<bool> greeted_{false};
  std::atomic<bool> over_{false};
  Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_CONNECTIONS_WRITER_STREAM_H_
