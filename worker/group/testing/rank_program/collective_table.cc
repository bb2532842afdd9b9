#include "worker/group/testing/rank_program/collective_table.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/group/testing/rank_program/sample_numbers.h"

namespace cohort::testing {
namespace {

using worker::Transfer;

constexpr int64_t kLarge = int64_t{1} << 20;
constexpr double kScale = 0.75;
// Bytes around tensors, which show writes outside of them.
constexpr size_t kMargin = 256;
constexpr char kUntouched = 0x5A;

constexpr Collective kCollectives[] = {Collective::kAllReduce,     Collective::kReduce,
                                       Collective::kBroadcast,     Collective::kAllGather,
                                       Collective::kReduceScatter, Collective::kAllToAll,
                                       Collective::kGather,        Collective::kScatter};

std::vector<int64_t> Counts(DataType type) {
  const int64_t large = kLarge / SizeOf(type);
  return {0, 1, 37, large - 1, large, large + 1};
}

bool IsAlikeOnAll(const Cell& cell) {
  const Collective collective = cell.operation.collective;
  return !cell.exchanges &&
         (collective == Collective::kAllReduce || collective == Collective::kBroadcast ||
          collective == Collective::kAllGather);
}

// FNV-1a.
void Digest(absl::string_view bytes, uint64_t& digest) {
  for (const char byte : bytes) {
    digest = (digest ^ static_cast<unsigned char>(byte)) * uint64_t{0x100000001B3};
  }
}

}  // namespace

std::string Describe(const Cell& cell) {
  std::string text = Describe(cell.operation);
  if (cell.exchanges) {
    text = absl::StrCat("exchange of ", cell.operation.count, " ", NameOf(cell.operation.type));
  }
  if (cell.in_place) absl::StrAppend(&text, ", in place");
  if (cell.shift > 0) absl::StrAppend(&text, ", ", cell.shift, " elements behind the beginning");
  return text;
}

std::vector<Cell> MakeTable(uint32_t seed, int ranks,
                            const std::function<bool(DataType, ReduceOp)>& reduces) {
  std::mt19937 random(seed);
  std::vector<Cell> table;
  const auto add = [&](Collective collective, DataType type, const Reduction& reduction,
                       bool exchanges) {
    for (const int64_t count : Counts(type)) {
      Cell cell;
      cell.exchanges = exchanges;
      cell.operation.collective = collective;
      cell.operation.type = type;
      cell.operation.count = count;
      cell.operation.reduction = reduction;
      cell.operation.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
      cell.in_place = !exchanges && collective != Collective::kAllToAll && random() % 2 == 0;
      cell.shift = random() % 3 == 0 ? static_cast<int>(random() % 4) : 0;
      table.push_back(cell);
    }
  };
  for (const DataType type : kDataTypes) {
    for (const Collective collective : kCollectives) {
      if (!Reduces(collective)) {
        add(collective, type, {}, false);
        continue;
      }
      for (const ReduceOp op : kReduceOps) {
        if (!reduces(type, op)) continue;
        const bool scales = op == ReduceOp::kPreMulSum;
        add(collective, type, Reduction{op, scales ? kScale : 1}, false);
      }
    }
    if (ranks > 1) add(Collective::kBarrier, type, {}, true);
  }
  // Not std::shuffle, which differs between libraries: all ranks need the same order.
  for (size_t i = table.size(); i > 1; --i) std::swap(table[i - 1], table[random() % i]);
  for (size_t i = 0; i < table.size(); ++i) table[i].number = static_cast<uint32_t>(i);
  return table;
}

TableRun::Layout TableRun::LayOut(const Cell& cell) const {
  const FlatCall& operation = cell.operation;
  const int64_t part = operation.count * SizeOf(operation.type);
  const int rank = communicator_.rank();
  Layout layout;
  layout.input = kMargin + static_cast<size_t>(cell.shift * SizeOf(operation.type));
  layout.input_bytes = static_cast<size_t>(
      cell.exchanges ? part : worker::InputBytes(operation, rank, communicator_.size()));
  layout.output_bytes = static_cast<size_t>(
      cell.exchanges ? part : worker::OutputBytes(operation, rank, communicator_.size()));
  if (!cell.in_place) {
    // At the next multiple of the margin, with the same shift.
    const size_t end = layout.input + layout.input_bytes + kMargin;
    layout.output = (end + kMargin - 1) / kMargin * kMargin + layout.input - kMargin;
  } else {
    const auto own = static_cast<size_t>(part * rank);
    layout.output = layout.input;
    if (layout.input_bytes < layout.output_bytes && layout.input_bytes > 0) layout.input += own;
    if (layout.output_bytes < layout.input_bytes && layout.output_bytes > 0) layout.output += own;
  }
  layout.bytes =
      std::max(layout.input + layout.input_bytes, layout.output + layout.output_bytes) + kMargin;
  return layout;
}

absl::Status TableRun::Call(const Cell& cell, const Layout& layout) {
  const FlatCall& o = cell.operation;
  const char* const input = memory_ + layout.input;
  char* const output = memory_ + layout.output;
  const Instant deadline = Clock::Steady().Now() + timeout_;
  if (cell.exchanges) {
    const int size = communicator_.size();
    const Transfer transfers[] = {
        Transfer::Receive((communicator_.rank() + size - 1) % size, output, o.count, o.type),
        Transfer::Send((communicator_.rank() + 1) % size, input, o.count, o.type)};
    return communicator_.Exchange(transfers, deadline);
  }
  return communicator_.Run(o, input, output, deadline);
}

absl::Status TableRun::Check(const Cell& cell, absl::string_view output) const {
  const FlatCall& o = cell.operation;
  const SampleSet set = {seed_ + cell.number, communicator_.size(), o.type};
  const int rank = communicator_.rank();
  const int size = communicator_.size();
  if (output.empty()) return absl::OkStatus();
  std::string expected;
  if (cell.exchanges) {
    expected = Sample(set, (rank + size - 1) % size, 0, o.count);
    return CheckMoved(o.type, expected, output);
  }
  switch (o.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      return CheckReduced(set, o.reduction, 0, output);
    case Collective::kReduceScatter:
      return CheckReduced(set, o.reduction, rank * o.count, output);
    case Collective::kBroadcast:
      expected = Sample(set, o.root, 0, o.count);
      break;
    case Collective::kScatter:
      expected = Sample(set, o.root, rank * o.count, o.count);
      break;
    case Collective::kAllToAll:
      for (int r = 0; r < size; ++r) {
        absl::StrAppend(&expected, Sample(set, r, rank * o.count, o.count));
      }
      break;
    default:
      for (int r = 0; r < size; ++r) absl::StrAppend(&expected, Sample(set, r, 0, o.count));
  }
  return CheckMoved(o.type, expected, output);
}

absl::Status TableRun::RunCell(const Cell& cell) {
  const Layout layout = LayOut(cell);
  if (layout.bytes > memory_bytes_) {
    // The old memory lives as long as the backend.
    const size_t bytes = std::max(layout.bytes, size_t{8} << 20);
    COHORT_ASSIGN_OR_RETURN(memory_, backend_.Allocate(bytes));
    memory_bytes_ = bytes;
  }
  const SampleSet set = {seed_ + cell.number, communicator_.size(), cell.operation.type};
  std::string before(layout.bytes, kUntouched);
  const int64_t inputs = static_cast<int64_t>(layout.input_bytes) / SizeOf(cell.operation.type);
  Sample(set, communicator_.rank(), 0, inputs).copy(&before[layout.input], layout.input_bytes);
  const Instant deadline = Clock::Steady().Now() + timeout_;
  COHORT_RETURN_IF_ERROR(backend_.Write(before, memory_, deadline));
  COHORT_RETURN_IF_ERROR(Call(cell, layout));
  COHORT_ASSIGN_OR_RETURN(std::string after,
                          backend_.Read(memory_, layout.bytes, Clock::Steady().Now() + timeout_));
  const absl::string_view output =
      absl::string_view(after).substr(layout.output, layout.output_bytes);
  COHORT_RETURN_IF_ERROR(Check(cell, output));
  if (IsAlikeOnAll(cell)) Digest(output, digest_);
  before.replace(layout.output, layout.output_bytes, output.data(), output.size());
  const auto wrong = std::mismatch(before.begin(), before.end(), after.begin()).first;
  if (wrong == before.end()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("a byte was written that is not of the output: ", wrong - before.begin(), " of ",
                   before.size(), ", where the input begins at ", layout.input,
                   " and the output at ", layout.output));
}

absl::Status TableRun::Run(const Cell& cell) {
  const absl::Status status = RunCell(cell);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("cell ", cell.number, ", ", Describe(cell), ": ",
                                                  status.message()));
}

}  // namespace cohort::testing
