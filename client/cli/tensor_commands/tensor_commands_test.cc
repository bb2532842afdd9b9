// The requests and the output of perf, push and pull, with a group of one rank; tests with more
// ranks are in worker/cli.
#include <fstream>
#include <string>
#include <vector>

#include "client/checkpoint/safetensors.h"
#include "client/cli/testing/tool_run.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<std::string> Perf(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"perf", "--group",      "g", "--rank",
                                        "0",    "--world-size", "1", "--sizes",
                                        "64",   "--iterations", "5"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(PerfCommand, AsksForTheRankOfItsFlags) {
  ToolRun tool;
  const ToolResult result =
      tool({"perf",          "all_reduce", "--group",  "g",   "--rank",    "1",
            "--world-size",  "3",          "--sizes",  "64",  "--form",    "remote",
            "--worker",      "a:1",        "--worker", "b:2", "--worker",  "c:3",
            "--coordinator", "h:9",        "--tenant", "t",   "--timeout", "7s",
            "--iterations",  "1"});
  ASSERT_THAT(tool.groups.requests, SizeIs(1));
  const GroupRequest& request = tool.groups.requests[0];
  EXPECT_EQ(request.form, GroupForm::kRemote);
  EXPECT_EQ(request.worker, "b:2");
  EXPECT_EQ(request.coordinator.address, "h:9");
  EXPECT_EQ(request.coordinator.tenant, "t");
  EXPECT_EQ(request.group, "g");
  EXPECT_EQ(request.rank, 1);
  EXPECT_EQ(request.world_size, 3);
  EXPECT_EQ(request.form_timeout, absl::Seconds(7));
  EXPECT_EQ(request.call_timeout, absl::Seconds(7));
}

TEST(PerfCommand, PutsTheRankIntoTheAddressOfItsWorker) {
  ToolRun tool;
  tool({"perf", "all_reduce", "--group", "g", "--rank", "11", "--world-size", "12", "--sizes", "64",
        "--iterations", "1", "--form", "remote", "--worker", "worker-{rank}.worker:7800"});
  ASSERT_THAT(tool.groups.requests, SizeIs(1));
  EXPECT_EQ(tool.groups.requests[0].worker, "worker-11.worker:7800");
}

TEST(PerfCommand, PrintsARowForEachOperationAndSize) {
  ToolRun tool;
  const ToolResult result = tool(Perf({"all_reduce", "broadcast"}));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\nall_reduce               64           16     f32"));
  EXPECT_THAT(result.out, HasSubstr("\nbroadcast                64           16     f32"));
  EXPECT_THAT(result.out, HasSubstr("# all results are right\n"));
  EXPECT_EQ(tool.interrupt_balance, 0);
  EXPECT_GT(tool.interrupts_set, 0);
}

TEST(PerfCommand, OnGpusNumbersAreCopied) {
  ToolRun tool;
  EXPECT_EQ(tool(Perf({"all_reduce"})).code, 0);
  EXPECT_EQ(tool.groups.copies, 0);
  EXPECT_FALSE(tool.groups.requests.back().gpu.has_value());
  ToolResult result = tool(Perf({"all_reduce", "--device", "cuda:3", "--json"}));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(R"("memory":"gpu")"));
  EXPECT_EQ(tool.groups.requests.back().gpu, 3);
  EXPECT_GT(tool.groups.copies, 0);
  result = tool(Perf({"all_reduce", "--device", "cuda"}));
  EXPECT_THAT(result.out, HasSubstr("memory of GPUs, rank 0's of "));
  EXPECT_EQ(tool.groups.requests.back().gpu, kGpuOfRank);

  for (const char* const device : {"gpu", "cuda:", "cuda:-1", "cuda:x", "cuda1", ""}) {
    EXPECT_EQ(tool(Perf({"--device", device})).code, 2) << device;
  }
  EXPECT_EQ(tool(Perf({"--device", "cuda", "--memory", "plain"})).code, 2);
  result = tool(Perf({"--device", "cuda", "--form", "remote", "--worker", "a:1"}));
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("it does not go with --form remote"));
}

TEST(PerfCommand, EachRankHasAGpuOfItsOwn) {
  ToolRun tool;
  ToolResult result = tool({"perf", "--members", "2", "--device", "cuda"});
  EXPECT_EQ(result.code, 9);
  EXPECT_THAT(result.err, HasSubstr("there is no GPU here"));
  tool.groups.gpus = 2;
  result = tool({"perf", "--members", "3", "--device", "cuda"});
  EXPECT_EQ(result.code, 9);
  EXPECT_THAT(result.err, HasSubstr("ranks 0 and 2 would share cuda:0, which NCCL refuses: there "
                                    "are 2 GPUs"));
  result = tool({"perf", "--members", "2", "--device", "cuda:1"});
  EXPECT_EQ(result.code, 9);
  EXPECT_THAT(result.err, HasSubstr("ranks 0 and 1 would share cuda:1, which NCCL refuses: there "
                                    "are 2 GPUs, and --device cuda takes one for each rank"));
}

TEST(PerfCommand, WrongElementsAreAnError) {
  ToolRun tool;
  // Five calls to warm up, five timed with six broadcasts, their times: then the checked one.
  tool.groups.spoils_call = 5 + 11 + 1 + 1;
  const ToolResult result = tool(Perf({"broadcast"}));
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("# 1 wrong element\n"));
  EXPECT_THAT(tool(Perf({"broadcast", "--json"})).out, HasSubstr("\"wrong_count\":1"));
}

TEST(PerfCommand, WithoutChecksNothingIsSaidToBeRight) {
  ToolRun tool;
  EXPECT_THAT(tool(Perf({"all_reduce", "--check", "0"})).out, HasSubstr("# nothing was checked\n"));
}

TEST(PerfCommand, ARequestThatCannotBeMeasuredMakesNoGroup) {
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
           {"sing"},
           {"--sizes", "8,x"},
           {"--type", "f31"},
           {"--reduction", "mean"},
           {"all_reduce", "--type", "bf16", "--reduction", "bit_or"},
           {"--root", "1"},
           {"sendrecv"},
           {"--form", "attached"},
           {"--worker", "a:1"},
           {"--members", "2"}}) {
    ToolRun tool;
    EXPECT_EQ(tool(Perf(wrong)).code, 2) << testing::PrintToString(wrong);
    EXPECT_THAT(tool.groups.requests, IsEmpty());
  }
}

TEST(PerfCommand, ReductionsThatAreNotUsedMayBeImpossible) {
  ToolRun tool;
  EXPECT_EQ(tool(Perf({"broadcast", "all_gather", "--type", "c64"})).code, 0);
}

TEST(PerfCommand, ErrorsOfTheGroupHaveTheirCodes) {
  ToolRun tool;
  tool.groups.error = absl::AbortedError("rank 3 is gone");
  const ToolResult result = tool(Perf({}));
  EXPECT_EQ(result.code, 6);
  EXPECT_EQ(result.err, "cohort: ABORTED: rank 3 is gone\n");
}

// A rank that joined late is not missing in the operations that follow.
TEST(PerfCommand, ARankThatJoinedLateIsNotBlamed) {
  ToolRun tool;
  tool.groups.waiting_to_join.emplace().missing = {{1, 1}};
  tool.groups.call_error = absl::DeadlineExceededError("all_reduce timed out");
  const ToolResult result = tool(Perf({}));
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("cohort: DEADLINE_EXCEEDED: all_reduce timed out\n"));
}

// --- Checkpoints.

std::string NewCheckpoint(const std::string& name, const std::string& data) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      << checkpoint::FormatHeader({{"w", DataType::kU8, {static_cast<int64_t>(data.size())}}}, {})
      << data;
  return path;
}

TEST(PushCommand, PrintsASummary) {
  ToolRun tool;
  const std::string path = NewCheckpoint("pushed", "0123456789");
  const ToolResult result = tool({"push", path, "--group", "g", "--world-size", "1"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("rank 0 of 1 pushed " + path + ": 1 tensor, "));
  EXPECT_EQ(tool.groups.requests[0].rank, 0);
  EXPECT_THAT(tool({"push", path, "--group", "g", "--world-size", "1", "--json"}).out,
              HasSubstr("\"tensor_count\":1"));
}

TEST(PushCommand, DamageIsReportedOnceTheGroupHasFormed) {
  ToolRun tool;
  const std::string path = NewCheckpoint("damaged", "0123456789");
  std::ofstream(path, std::ios::app) << "more";
  const ToolResult result = tool({"push", path, "--group", "g", "--world-size", "1"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr(path));
  EXPECT_THAT(tool.groups.requests, SizeIs(1));
}

TEST(PushCommand, AFileThatCannotBeOpenedIsReportedBeforeTheGroupForms) {
  ToolRun tool;
  const std::string path = testing::TempDir() + "/no_such_checkpoint";
  const ToolResult result = tool({"push", path, "--group", "g", "--world-size", "2"});
  EXPECT_EQ(result.code, 4);
  EXPECT_THAT(result.err, HasSubstr(path));
  EXPECT_THAT(tool.groups.requests, IsEmpty());
}

TEST(PullCommand, ARankCannotPullFromItself) {
  ToolRun tool;
  EXPECT_EQ(tool({"pull", "--group", "g", "--rank", "0", "--world-size", "2"}).code, 2);
  EXPECT_EQ(tool({"pull", "--group", "g", "--rank", "1", "--world-size", "2", "--root", "2"}).code,
            2);
  EXPECT_THAT(tool.groups.requests, IsEmpty());
}

}  // namespace
}  // namespace cohort::cli
