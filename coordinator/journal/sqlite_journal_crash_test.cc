// A child process appends; the parent kills it at a random moment and opens the file. All
// rows that the child reported as durable must be there, and the batch it died in must be there
// whole or not at all. Many processes use the same file one after the other, so that the log is
// recovered, folded and restarted on the way.
//
// COHORT_TEST_SEED repeats a run.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "coordinator/journal/record_codec.h"
#include "coordinator/journal/sqlite_journal.h"
#include "coordinator/journal/testing/sample_records.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

constexpr int kProcesses = 80;

uint32_t Seed() {
  uint32_t seed = 0;
  const char* text = std::getenv("COHORT_TEST_SEED");
  if (text != nullptr && absl::SimpleAtoi(text, &seed)) return seed;
  return std::random_device()();
}

// Batch number `number` of a run; a function of the two arguments alone, so that parent and child
// agree.
std::vector<Record> MakeBatch(uint32_t seed, int64_t number) {
  std::seed_seq sequence{seed, static_cast<uint32_t>(number)};
  std::mt19937 random(sequence);
  std::vector<Record> batch;
  // Small batches mostly; now and then one that fills the log.
  const int count = random() % 20 == 0 ? 300 : 1 + random() % 12;
  for (int i = 0; i < count; ++i) {
    const std::string group = absl::StrCat("g", random() % 3);
    const std::string key = absl::StrCat("key-", random() % 200);
    switch (random() % 10) {
      case 0:
      case 1:
        batch.push_back(Record{{"tenant", group}, RecordKind::kKey, key, std::nullopt});
        break;
      case 2:
        if (random() % 10 == 0) {
          batch.push_back(Record{{"tenant", group}, RecordKind::kKey, "", std::nullopt, true});
        }
        break;
      default:
        batch.push_back(
            SampleKey(group, key, absl::StrCat(number, ":", std::string(random() % 6000, 'v'))));
    }
  }
  // Every batch changes something, so that no two numbers leave the same rows.
  batch.push_back(SampleKey("g", "last batch", absl::StrCat(number)));
  return batch;
}

using RowName = std::tuple<std::string, std::string, RecordKind, std::string>;
using Rows = std::map<RowName, std::string>;  // to the encoded value

void ApplyTo(Rows& rows, const std::vector<Record>& batch) {
  for (const Record& record : batch) {
    const RowName name{record.key.tenant, record.key.group, record.kind, record.id};
    if (record.value.has_value()) {
      rows[name] = EncodeRecord(*record.value);
    } else if (!record.whole_kind) {
      rows.erase(name);
    } else {
      for (auto row = rows.begin(); row != rows.end();) {
        const auto& [tenant, group, kind, id] = row->first;
        const bool gone =
            tenant == record.key.tenant && group == record.key.group && kind == record.kind;
        row = gone ? rows.erase(row) : std::next(row);
      }
    }
  }
}

// Appends until it is killed, and says each batch's number once it is durable.
[[noreturn]] void Live(const std::string& path, uint32_t seed, int64_t next, int reports) {
  SqliteJournal journal(path);
  if (!journal.Open().ok()) _exit(1);
  for (;; ++next) {
    if (!journal.Append(MakeBatch(seed, next)).ok()) _exit(2);
    if (write(reports, &next, sizeof(next)) != sizeof(next)) _exit(3);
  }
}

// Reads one number, or returns false at the end of the reports.
bool ReadReport(int reports, int64_t* number) {
  ssize_t count;
  do {
    count = read(reports, number, sizeof(*number));
  } while (count < 0 && errno == EINTR);
  return count == sizeof(*number);
}

TEST(SqliteJournalCrash, KeepsWhatWasReportedAndNoHalfBatch) {
  const uint32_t seed = Seed();
  std::cout << "COHORT_TEST_SEED=" << seed << std::endl;
  SCOPED_TRACE(absl::StrCat("COHORT_TEST_SEED=", seed));
  std::mt19937 random(seed);
  std::string folder = absl::StrCat(testing::TempDir(), "/crash.XXXXXX");
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = absl::StrCat(folder, "/journal");

  Rows expected;
  int64_t next = 1;  // the first batch that is not in `expected`
  int64_t boots = 0;
  for (int process = 0; process < kProcesses; ++process) {
    SCOPED_TRACE(absl::StrCat("process ", process));
    int reports[2];
    ASSERT_EQ(pipe(reports), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(reports[0]);
      Live(path, seed, next, reports[1]);
    }
    close(reports[1]);

    // Some processes end before or inside Open, most after a few batches and a moment.
    int64_t reported = next - 1;
    const int batches = random() % 8 == 0 ? 0 : random() % 40;
    for (int i = 0; i < batches; ++i) {
      if (!ReadReport(reports[0], &reported)) break;
    }
    usleep(random() % 3000);
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int exit_status = 0;
    ASSERT_EQ(waitpid(child, &exit_status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(exit_status)) << "the child ended by itself: " << exit_status;
    while (ReadReport(reports[0], &reported)) continue;
    close(reports[0]);

    SqliteJournal journal(path);
    const absl::StatusOr<JournalContents> contents = journal.Open();
    ASSERT_TRUE(contents.ok()) << contents.status();
    // The child's start, if it came that far, and this one.
    EXPECT_GE(contents->boot, boots + (reported >= next ? 2 : 1));
    EXPECT_LE(contents->boot, boots + 2);
    boots = contents->boot;

    for (; next <= reported; ++next) ApplyTo(expected, MakeBatch(seed, next));
    Rows found;
    for (const Record& row : contents->rows) {
      found[{row.key.tenant, row.key.group, row.kind, row.id}] = EncodeRecord(*row.value);
    }
    if (found != expected) {
      // Durable, but killed before it could say so.
      ApplyTo(expected, MakeBatch(seed, next));
      ++next;
    }
    ASSERT_TRUE(found == expected) << "after batch " << reported << " was reported";
  }
  std::cout << kProcesses << " processes, " << next - 1 << " batches kept" << std::endl;
  EXPECT_GT(next, kProcesses);
  for (const char* suffix : {"", "-wal", "-journal"}) unlink(absl::StrCat(path, suffix).c_str());
  rmdir(folder.c_str());
}

}  // namespace
}  // namespace cohort::coordinator
