#include "worker/communicator/host/host_communicator.h"

#include <utility>

#include "base/status_macros.h"

namespace cohort::worker {
namespace {

// Up to this size every rank reduces all of a chunk itself; above, each reduces its slice, and they
// wait at the barrier again.
constexpr int64_t kOneShotBytes = int64_t{16} << 10;

const char* At(const void* from, int64_t bytes) { return static_cast<const char*>(from) + bytes; }
char* At(void* to, int64_t bytes) { return static_cast<char*>(to) + bytes; }

// Does nothing if the memory is already in place.
void CopyOne(void* to, const void* from, int64_t bytes, Stores stores = Stores::kCached) {
  if (to != from) Copy(from, absl::MakeConstSpan(&to, 1), bytes, stores);
}

absl::Status Done() { return absl::OkStatus(); }

}  // namespace

absl::Status HostCommunicator::Run(const FlatCall& call, const void* input, void* output,
                                   Instant deadline) {
  COHORT_RETURN_IF_ERROR(CheckArguments(call, rank_, size(), input, output));
  switch (call.collective) {
    case Collective::kAllReduce:
      return RunAllReduce(call, input, output, deadline);
    case Collective::kReduce:
      return RunReduce(call, input, output, deadline);
    case Collective::kBroadcast:
      return call.eager ? RunEagerBroadcast(call, input, output, deadline)
                        : RunBroadcast(call, input, output, deadline);
    case Collective::kAllGather:
      return RunAllGather(call, input, output, deadline);
    case Collective::kReduceScatter:
      return RunReduceScatter(call, input, output, deadline);
    case Collective::kAllToAll:
      return RunAllToAll(call, input, output, deadline);
    case Collective::kGather:
      return RunGather(call, input, output, deadline);
    case Collective::kScatter:
      return RunScatter(call, input, output, deadline);
    default:
      return barrier_.ArriveAndWait(call, kPut, deadline);
  }
}

absl::Status HostCommunicator::RunAllReduce(const FlatCall& call, const void* input, void* output,
                                            Instant deadline) {
  const int64_t element = SizeOf(call.type);
  const int64_t bytes = call.count * element;
  const auto reduce = [&](const std::vector<const void*>& from, absl::Span<void* const> to,
                          int64_t size, Stores stores = Stores::kCached) {
    worker::Reduce(call.type, call.reduction, from, to, size, stores);
  };
  if (bytes <= space_.small_bytes()) {
    COHORT_RETURN_IF_ERROR(Deposit(call, input, bytes, deadline));
    reduce(Deposits(0), absl::MakeConstSpan(&output, 1), call.count);
    return Done();
  }
  return Large(call, input, output,
               {true, true, 1,
                [&] {
                  ForShare(bytes, size() - 1, 2 * bytes * size(), [&](Slice share, Stores stores) {
                    reduce(Inputs(share.begin), Outputs(share.begin), share.size / element, stores);
                  });
                },
                [&](const Chunk& chunk) {
                  const char* const from = At(input, chunk.at * element);
                  const int64_t chunk_bytes = chunk.size * element;
                  if (chunk_bytes <= kOneShotBytes) return Put(buffer(rank_), from, chunk_bytes);
                  // No other rank reads this rank's slice of the input.
                  const Slice own = SliceOf(rank_, chunk_bytes);
                  const int64_t end = own.begin + own.size;
                  Put(buffer(rank_), from, own.begin);
                  Put(buffer(rank_) + end, from + end, chunk_bytes - end);
                },
                [&](const Chunk& chunk) -> absl::Status {
                  char* const result = At(output, chunk.at * element);
                  const int64_t chunk_bytes = chunk.size * element;
                  if (chunk_bytes <= kOneShotBytes) {
                    void* const whole = result;
                    reduce(Deposits(0), absl::MakeConstSpan(&whole, 1), chunk.size);
                    return Done();
                  }
                  const Slice own = SliceOf(rank_, chunk_bytes);
                  // The buffer of this rank's slice is free for the result.
                  void* const slices[] = {At(buffer(rank_), own.begin), At(result, own.begin)};
                  reduce(DepositsAnd(At(input, chunk.at * element + own.begin), own.begin), slices,
                         own.size / element, put_.best());
                  COHORT_RETURN_IF_ERROR(barrier_.ArriveAndWait(call, kReduced, deadline));
                  for (int step = 1; step < size(); ++step) {
                    const int owner = (rank_ + step) % size();
                    const Slice slice = SliceOf(owner, chunk_bytes);
                    CopyOne(At(result, slice.begin), buffer(owner) + slice.begin, slice.size,
                            taken_out_);
                  }
                  return Done();
                }},
               deadline);
}

absl::Status HostCommunicator::RunReduce(const FlatCall& call, const void* input, void* output,
                                         Instant deadline) {
  const int64_t element = SizeOf(call.type);
  const int64_t bytes = call.count * element;
  const auto reduce_all = [&](const Chunk& chunk) {
    if (rank_ != call.root) return Done();
    void* const result = At(output, chunk.at * element);
    worker::Reduce(call.type, call.reduction, Deposits(0), absl::MakeConstSpan(&result, 1),
                   chunk.size, taken_out_);
    return Done();
  };
  if (bytes <= space_.small_bytes()) {
    COHORT_RETURN_IF_ERROR(Deposit(call, input, bytes, deadline));
    return reduce_all({0, call.count});
  }
  return Large(call, input, output,
               {true, true, 1,
                [&] {
                  // 0 copies: a rank reads all inputs to store one output, so the time says little
                  // about stores.
                  ForShare(bytes, 0, bytes * (size() + 1), [&](Slice share, Stores stores) {
                    void* const result = At(outputs_[static_cast<size_t>(call.root)], share.begin);
                    worker::Reduce(call.type, call.reduction, Inputs(share.begin),
                                   absl::MakeConstSpan(&result, 1), share.size / element, stores);
                  });
                },
                [&](const Chunk& chunk) {
                  Put(buffer(rank_), At(input, chunk.at * element), chunk.size * element);
                },
                reduce_all},
               deadline);
}

absl::Status HostCommunicator::RunBroadcast(const FlatCall& call, const void* input, void* output,
                                            Instant deadline) {
  const int64_t element = SizeOf(call.type);
  const int64_t bytes = call.count * element;
  const int64_t own_bytes = rank_ == call.root ? bytes : 0;
  if (bytes <= space_.small_bytes()) {
    COHORT_RETURN_IF_ERROR(Deposit(call, input, own_bytes, deadline, bytes));
    CopyOne(output, rank_ == call.root ? input : deposit(call.root), bytes);
    return Done();
  }
  return Large(call, input, output,
               {true, true, 1,
                [&] {
                  ForShare(bytes, size() - 1, bytes * size(), [&](Slice share, Stores stores) {
                    const char* const from = inputs_[static_cast<size_t>(call.root)] + share.begin;
                    Copy(from, OutputsBut(from, share.begin), share.size, stores);
                  });
                },
                [&](const Chunk& chunk) {
                  if (rank_ != call.root) return;
                  Put(buffer(rank_), At(input, chunk.at * element), chunk.size * element);
                },
                [&](const Chunk& chunk) {
                  const void* const from =
                      rank_ == call.root ? At(input, chunk.at * element) : buffer(call.root);
                  CopyOne(At(output, chunk.at * element), from, chunk.size * element, taken_out_);
                  return Done();
                }},
               deadline);
}

absl::Status HostCommunicator::RunEagerBroadcast(const FlatCall& call, const void* input,
                                                 void* output, Instant deadline) {
  const int64_t bytes = call.count * SizeOf(call.type);
  if (bytes > space_.eager_broadcast_bytes()) {
    return RunBroadcast(call, input, output, deadline);
  }
  const bool in_line = bytes <= static_cast<int64_t>(ArrivalLine::kDataBytes);
  if (rank_ == call.root) {
    CopyOne(in_line ? barrier_.own_data() : space_.eager_slot(call.root, barrier_.sequence() + 1),
            input, bytes);
  }
  COHORT_RETURN_IF_ERROR(barrier_.Follow(call, call.root, deadline));
  const void* const data =
      in_line ? barrier_.data(call.root) : space_.eager_slot(call.root, barrier_.sequence());
  CopyOne(output, rank_ == call.root ? input : data, bytes);
  return Done();
}

absl::Status HostCommunicator::RunAllGather(const FlatCall& call, const void* input, void* output,
                                            Instant deadline) {
  const int64_t element = SizeOf(call.type);
  const int64_t bytes = call.count * element;
  const auto take = [&](const Chunk& chunk) {
    for (int step = 0; step < size(); ++step) {
      const int rank = (rank_ + step) % size();
      const void* const from = step == 0 ? At(input, chunk.at * element) : deposit(rank);
      CopyOne(At(output, (rank * call.count + chunk.at) * element), from, chunk.size * element,
              taken_out_);
    }
    return Done();
  };
  if (bytes <= space_.small_bytes()) {
    COHORT_RETURN_IF_ERROR(Deposit(call, input, bytes, deadline));
    return take({0, call.count});
  }
  return Large(call, input, output,
               {false, true, 1,
                [&] {
                  ForOthers(bytes * (size() - 1), bytes * (size() + 1) * size(),
                            [&](Stores stores) {
                              Copy(input, OutputsBut(input, rank_ * bytes), bytes, stores);
                            });
                },
                [&](const Chunk& chunk) {
                  Put(buffer(rank_), At(input, chunk.at * element), chunk.size * element);
                },
                take},
               deadline);
}

absl::Status HostCommunicator::RunReduceScatter(const FlatCall& call, const void* input,
                                                void* output, Instant deadline) {
  const int64_t element = SizeOf(call.type);
  const int64_t bytes = call.count * element;
  if (bytes * size() <= space_.small_bytes()) {
    COHORT_RETURN_IF_ERROR(Deposit(call, input, bytes * size(), deadline));
    worker::Reduce(call.type, call.reduction, Deposits(rank_ * bytes),
                   absl::MakeConstSpan(&output, 1), call.count);
    return Done();
  }
  return Large(call, input, output,
               {true, false, size(),
                [&] {
                  worker::Reduce(call.type, call.reduction, Inputs(rank_ * bytes),
                                 absl::MakeConstSpan(&output, 1), call.count,
                                 StoresOf(bytes * (size() + 1) * size()));
                },
                [&](const Chunk& chunk) {
                  for (int rank = 0; rank < size(); ++rank) {
                    if (rank == rank_) continue;
                    Put(At(buffer(rank_), rank * chunk.size * element),
                        At(input, (rank * call.count + chunk.at) * element), chunk.size * element);
                  }
                },
                [&](const Chunk& chunk) {
                  void* const result = At(output, chunk.at * element);
                  const char* const own = At(input, (rank_ * call.count + chunk.at) * element);
                  worker::Reduce(call.type, call.reduction,
                                 DepositsAnd(own, rank_ * chunk.size * element),
                                 absl::MakeConstSpan(&result, 1), chunk.size, taken_out_);
                  return Done();
                }},
               deadline);
}

absl::Status HostCommunicator::RunAllToAll(const FlatCall& call, const void* input, void* output,
                                           Instant deadline) {
  const int64_t element = SizeOf(call.type);
  const int64_t bytes = call.count * element;
  // `from` returns a rank's part for this rank.
  const auto take = [&](const Chunk& chunk, absl::FunctionRef<const void*(int)> from,
                        Stores stores) {
    for (int step = 0; step < size(); ++step) {
      const int rank = (rank_ + step) % size();
      void* const to = At(output, (rank * call.count + chunk.at) * element);
      Copy(step == 0 ? At(input, (rank_ * call.count + chunk.at) * element) : from(rank),
           absl::MakeConstSpan(&to, 1), chunk.size * element, stores);
    }
    return Done();
  };
  if (bytes * size() <= space_.small_bytes()) {
    COHORT_RETURN_IF_ERROR(Deposit(call, input, bytes * size(), deadline));
    return take(
        {0, call.count}, [&](int rank) { return deposit(rank) + rank_ * bytes; }, Stores::kCached);
  }
  return Large(call, input, output,
               {true, false, size(),
                [&] {
                  take(
                      {0, call.count},
                      [&](int rank) { return inputs_[static_cast<size_t>(rank)] + rank_ * bytes; },
                      StoresOf(2 * bytes * size() * size()))
                      .IgnoreError();
                },
                [&](const Chunk& chunk) {
                  for (int rank = 0; rank < size(); ++rank) {
                    if (rank == rank_) continue;
                    Put(At(buffer(rank_), rank * chunk.size * element),
                        At(input, (rank * call.count + chunk.at) * element), chunk.size * element);
                  }
                },
                [&](const Chunk& chunk) {
                  return take(
                      chunk, [&](int rank) { return buffer(rank) + rank_ * chunk.size * element; },
                      taken_out_);
                }},
               deadline);
}

absl::Status HostCommunicator::RunGather(const FlatCall& call, const void* input, void* output,
                                         Instant deadline) {
  const int64_t element = SizeOf(call.type);
  const int64_t bytes = call.count * element;
  const auto take = [&](const Chunk& chunk) {
    if (rank_ != call.root) return Done();
    for (int rank = 0; rank < size(); ++rank) {
      const void* const from = rank == rank_ ? At(input, chunk.at * element) : deposit(rank);
      CopyOne(At(output, (rank * call.count + chunk.at) * element), from, chunk.size * element,
              taken_out_);
    }
    return Done();
  };
  if (bytes <= space_.small_bytes()) {
    COHORT_RETURN_IF_ERROR(Deposit(call, input, bytes, deadline));
    return take({0, call.count});
  }
  return Large(call, input, output,
               {false, true, 1,
                [&] {
                  void* const to = outputs_[static_cast<size_t>(call.root)] + rank_ * bytes;
                  if (rank_ == call.root && to == input) return;
                  Copy(input, absl::MakeConstSpan(&to, 1), bytes, StoresOf(2 * bytes * size()));
                },
                [&](const Chunk& chunk) {
                  if (rank_ == call.root) return;
                  Put(buffer(rank_), At(input, chunk.at * element), chunk.size * element);
                },
                take},
               deadline);
}

absl::Status HostCommunicator::RunScatter(const FlatCall& call, const void* input, void* output,
                                          Instant deadline) {
  const int64_t element = SizeOf(call.type);
  const int64_t bytes = call.count * element;
  const int64_t own_bytes = rank_ == call.root ? bytes * size() : 0;
  if (bytes * size() <= space_.small_bytes()) {
    COHORT_RETURN_IF_ERROR(Deposit(call, input, own_bytes, deadline, bytes * size()));
    CopyOne(output,
            rank_ == call.root ? At(input, rank_ * bytes) : deposit(call.root) + rank_ * bytes,
            bytes);
    return Done();
  }
  return Large(call, input, output,
               {true, false, size(),
                [&] {
                  const char* const from = inputs_[static_cast<size_t>(call.root)] + rank_ * bytes;
                  if (rank_ == call.root && output == At(input, rank_ * bytes)) return;
                  Copy(from, absl::MakeConstSpan(&output, 1), bytes, StoresOf(2 * bytes * size()));
                },
                [&](const Chunk& chunk) {
                  if (rank_ != call.root) return;
                  for (int rank = 0; rank < size(); ++rank) {
                    if (rank == rank_) continue;
                    Put(At(buffer(rank_), rank * chunk.size * element),
                        At(input, (rank * call.count + chunk.at) * element), chunk.size * element);
                  }
                },
                [&](const Chunk& chunk) {
                  const void* const from =
                      rank_ == call.root ? At(input, (rank_ * call.count + chunk.at) * element)
                                         : buffer(call.root) + rank_ * chunk.size * element;
                  CopyOne(At(output, chunk.at * element), from, chunk.size * element, taken_out_);
                  return Done();
                }},
               deadline);
}

absl::Status HostCommunicator::Exchange(absl::Span<const Transfer> transfers, Instant deadline) {
  COHORT_RETURN_IF_ERROR(CheckTransfers(transfers, rank_, size()));
  return mailbox_.Exchange(transfers, deadline);
}

absl::Status HostCommunicator::ExchangeControlMessages(absl::Span<const Transfer> messages,
                                                       Instant deadline) {
  static_assert(kMaxControlMessageBytes <= static_cast<int64_t>(FragmentLine::kDataBytes));
  COHORT_RETURN_IF_ERROR(CheckControlMessages(messages, rank_, size()));
  return control_mailbox_.Exchange(messages, deadline);
}

void HostCommunicator::Drain(Instant deadline) {
  barrier_.Drain(deadline);
  mailbox_.Drain(deadline);
  control_mailbox_.Drain(deadline);
}

void HostCommunicator::Abort(absl::string_view cause) { waiter_.SetPoison(cause); }

}  // namespace cohort::worker
