// Measures the cost of one durable step. The disk's sync dominates: name the disk next to the
// numbers.
//
//   bazel run --config=opt //coordinator/journal:sqlite_journal_benchmark
//
// The file lies in TEST_TMPDIR, or in the current folder without it; a memory file system measures
// no disk.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "coordinator/journal/sqlite_journal.h"
#include "coordinator/journal/testing/sample_records.h"

namespace cohort::coordinator {
namespace {

std::string MakeFolder() {
  const char* parent = std::getenv("TEST_TMPDIR");
  std::string folder = absl::StrCat(parent == nullptr ? "." : parent, "/journal.XXXXXX");
  return mkdtemp(folder.data()) == nullptr ? "." : folder;
}

// Rows of 100 bytes; each Append replaces a tenth of what a group of that size holds.
void BM_Append(benchmark::State& state) {
  const std::string folder = MakeFolder();
  const std::string path = absl::StrCat(folder, "/journal");
  {
    SqliteJournal journal(path);
    if (!journal.Open().ok()) {
      state.SkipWithError("cannot open");
      return;
    }
    const int64_t batch_rows = state.range(0);
    constexpr int kBatches = 10;
    std::vector<std::vector<Record>> batches(kBatches);
    for (int batch = 0; batch < kBatches; ++batch) {
      for (int64_t row = 0; row < batch_rows; ++row) {
        batches[batch].push_back(
            SampleKey("group", absl::StrCat(row, "-", batch), std::string(100, 'x')));
      }
    }
    int next = 0;
    int64_t revision = 0;
    for (auto _ : state) {
      // SQLite writes nothing, and syncs nothing, for a row that stays as it is.
      for (Record& record : batches[next]) std::get<KeyRecord>(*record.value).revision = ++revision;
      const absl::Status status = journal.Append(batches[next]);
      if (!status.ok()) {
        state.SkipWithError(std::string(status.message()).c_str());
        break;
      }
      next = (next + 1) % kBatches;
    }
    state.SetItemsProcessed(state.iterations() * batch_rows);
  }
  unlink(path.c_str());
  rmdir(folder.c_str());
}
BENCHMARK(BM_Append)->Arg(1)->Arg(8)->Arg(64)->Arg(512)->UseRealTime()->Unit(
    benchmark::kMicrosecond);

}  // namespace
}  // namespace cohort::coordinator

BENCHMARK_MAIN();
