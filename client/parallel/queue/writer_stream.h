// The writer's end of one stream.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_WRITER_STREAM_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_WRITER_STREAM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "client/parallel/queue/ring_writer.h"
#include "cohort/v1/queue.pb.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

namespace cohort::parallel {

// How many streams there are, and how many of them are readers': the rest have not said hello.
class StreamCount {
 public:
  void Add(int streams, int readers) ABSL_LOCKS_EXCLUDED(mutex_);
  // False: the time has passed.
  bool AwaitNone(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);
  bool AwaitNoReaders(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  bool AwaitZero(const int& count, absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  int streams_ ABSL_GUARDED_BY(mutex_) = 0;
  int readers_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A seat at the ring like any other: its head is where the reader at the far end has come to, so
// the bytes that are on their way lie in the ring, and nowhere else is there a queue that could
// grow. They are sent from where they lie.
//
// Only one writes at a time, or finishes: whoever has taken `reader_sleeps` from 1 to 0. Who has
// nothing to write puts it back, and may not touch the reactor from then on.
class WriterStream final : public std::enable_shared_from_this<WriterStream> {
 public:
  using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

  // The reactor owns itself, and ends when the reader goes or has heard the end of the queue.
  static Reactor* Start(std::shared_ptr<RingWriter> writer, const v1::QueueHandle& handle,
                        std::shared_ptr<StreamCount> count, grpc::CallbackServerContext* context);

 private:
  class StreamReactor;
  class StreamSeat;

  // `peer` as gRPC calls it.
  WriterStream(std::shared_ptr<RingWriter> writer, const v1::QueueHandle& handle,
               std::shared_ptr<StreamCount> count, const std::string& peer);

  // On the reactor's reads. False: the stream is over.
  bool OnRequest(const grpc::ByteBuffer& bytes);
  bool OnHello(const v1::QueueHello& hello);
  bool OnProgress(const v1::QueueProgress& progress);
  // The stream ends with `status`; the first stays.
  void End(const absl::Status& status);

  bool TakeTurn() { return page_.reader_sleeps.exchange(0, std::memory_order_seq_cst) == 1; }
  // By who has the turn.
  void WriteOn();
  void FinishCall();

  const std::shared_ptr<RingWriter> writer_;
  const v1::QueueHandle handle_;
  const std::shared_ptr<StreamCount> count_;
  const std::string peer_;  // "10.0.0.4:4123"
  Reactor* reactor_ = nullptr;
  ReaderPage page_ = {};
  std::shared_ptr<StreamSeat> seat_;  // of the reads
  std::atomic<uint64_t> sent_{0};
  // Of who has the turn.
  bool welcomed_ = false;
  bool end_sent_ = false;
  grpc::ByteBuffer message_;

  std::atomic<bool> over_{false};
  Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_WRITER_STREAM_H_
