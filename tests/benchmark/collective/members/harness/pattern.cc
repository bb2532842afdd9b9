#include "tests/benchmark/collective/members/harness/pattern.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::benchmark {
namespace {

constexpr int64_t kPeriod = 1021;
constexpr int64_t kRankShift = 331;

float ElementOf(int rank, int64_t index) {
  return static_cast<float>((index + kRankShift * rank) % kPeriod);
}

// A piece of an output: the sum of what `ranks` have from `start` on.
struct Piece {
  int64_t offset = 0;
  int64_t count = 0;
  int64_t start = 0;
  std::vector<int> ranks;
};

std::vector<Piece> ExpectedPieces(const Work& work, int rank, int members) {
  const int64_t output = ExtentsOf(work, rank, members).output;
  const int64_t block = BlockElements(work, members);
  std::vector<int> everybody;
  for (int i = 0; i < members; ++i) everybody.push_back(i);

  std::vector<Piece> pieces;
  switch (work.collective) {
    case Collective::kAllReduce:
      return {{0, output, 0, everybody}};
    case Collective::kReduceScatter:
      return {{0, output, rank * block, everybody}};
    case Collective::kBroadcast:
      return {{0, output, 0, {0}}};
    case Collective::kExchange:
      return {{0, output, 0, {(rank + members - 1) % members}}};
    case Collective::kAllGather:
      for (int i = 0; i < members; ++i) {
        pieces.push_back({i * (output / members), output / members, 0, {i}});
      }
      return pieces;
    case Collective::kAllToAll:
      for (int i = 0; i < members; ++i) pieces.push_back({i * block, block, rank * block, {i}});
      return pieces;
    default:
      return pieces;
  }
}

// A period of the piece, from its first element on.
std::vector<float> OnePeriod(const Piece& piece) {
  std::vector<float> period(kPeriod, 0.0f);
  for (int64_t i = 0; i < kPeriod; ++i) {
    for (int rank : piece.ranks) period[i] += ElementOf(rank, piece.start + i);
  }
  return period;
}

absl::Status CheckPiece(const Piece& piece, const float* output) {
  const std::vector<float> period = OnePeriod(piece);
  for (int64_t done = 0; done < piece.count; done += kPeriod) {
    const float* found = output + piece.offset + done;
    const int64_t count = std::min(kPeriod, piece.count - done);
    if (std::memcmp(found, period.data(), count * sizeof(float)) == 0) continue;
    for (int64_t i = 0; i < count; ++i) {
      if (found[i] == period[i]) continue;
      return absl::DataLossError(absl::StrCat("element ", piece.offset + done + i, " is ", found[i],
                                              " and should be ", period[i]));
    }
  }
  return absl::OkStatus();
}

}  // namespace

void FillInput(const Work& work, int rank, int members, float* input) {
  const int64_t count = ExtentsOf(work, rank, members).input;
  const std::vector<float> period = OnePeriod({0, count, 0, {rank}});
  for (int64_t done = 0; done < count; done += kPeriod) {
    std::memcpy(input + done, period.data(), std::min(kPeriod, count - done) * sizeof(float));
  }
}

void SpoilOutput(const Work& work, int rank, int members, float* output) {
  const int64_t count = ExtentsOf(work, rank, members).output;
  if (count > 0) std::memset(output, 0xff, count * sizeof(float));
}

absl::Status CheckOutput(const Work& work, int rank, int members, const float* output) {
  for (const Piece& piece : ExpectedPieces(work, rank, members)) {
    COHORT_RETURN_IF_ERROR(CheckPiece(piece, output));
  }
  return absl::OkStatus();
}

}  // namespace cohort::benchmark
