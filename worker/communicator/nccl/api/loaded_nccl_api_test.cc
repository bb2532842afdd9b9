#include "worker/communicator/nccl/api/loaded_nccl_api.h"

#include <cstdlib>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kMissing[] = "/no/such/folder/libnccl.so.2";
constexpr char kTooOld[] = "worker/communicator/nccl/api/testing/libtoo_old_nccl.so";
constexpr char kLacking[] = "worker/communicator/nccl/api/testing/liblacking_nccl.so";

std::string TextOf(const absl::Status& status) { return std::string(status.message()); }

TEST(LoadedNcclApiTest, VersionsAreReadable) {
  EXPECT_EQ(NcclVersionText(22809), "2.28.9");
  EXPECT_EQ(NcclVersionText(kLeastNcclVersion), "2.28.7");
  EXPECT_EQ(NcclVersionText(2708), "2.7.8");
}

TEST(LoadedNcclApiTest, SaysWhatWasTriedAndHowToGetIt) {
  const absl::Status missing = LoadNccl(kMissing).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(TextOf(missing), AllOf(HasSubstr(kMissing), HasSubstr("install NCCL 2.28.7"),
                                     HasSubstr("COHORT_NCCL_LIBRARY")));
  // If a library is named, no other one takes its place.
  EXPECT_THAT(TextOf(missing), Not(HasSubstr("/usr/local/cuda")));
}

TEST(LoadedNcclApiTest, TheEnvironmentNamesALibrary) {
  setenv("COHORT_NCCL_LIBRARY", kMissing, 1);
  const absl::Status missing = LoadNccl().status();
  unsetenv("COHORT_NCCL_LIBRARY");
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(TextOf(missing), HasSubstr(kMissing));
}

TEST(LoadedNcclApiTest, RefusesOneThatIsTooOld) {
  // Twice: the failure leaves nothing.
  for (int i = 0; i < 2; ++i) {
    const absl::Status refused = LoadNccl(kTooOld).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(TextOf(refused),
                AllOf(HasSubstr("libtoo_old_nccl.so is NCCL 2.18.0; 2.28.7 or later is needed")));
  }
}

TEST(LoadedNcclApiTest, NamesAFunctionThatIsMissing) {
  const absl::Status refused = LoadNccl(kLacking).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(TextOf(refused), HasSubstr("liblacking_nccl.so, NCCL 2.28.9, lacks ncclGetUniqueId"));
}

TEST(LoadedNcclApiTest, RefusesWhatIsNoNccl) {
  const absl::Status refused = LoadNccl("libm.so.6").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(TextOf(refused), HasSubstr("libm.so.6 is no NCCL"));
}

TEST(LoadedNcclApiTest, LoadsThatOfThisMachineOnce) {
  const auto nccl = LoadNccl();
  if (absl::IsNotFound(nccl.status())) GTEST_SKIP() << nccl.status();
  ASSERT_TRUE(nccl.ok()) << nccl.status();
  EXPECT_GE((*nccl)->version, kLeastNcclVersion);
  EXPECT_THAT((*nccl)->source, HasSubstr("/libnccl.so"));
  EXPECT_EQ(*LoadNccl(), *nccl);
  // By its file as well.
  EXPECT_TRUE(LoadNccl((*nccl)->source).ok());
  EXPECT_STREQ((*nccl)->GetErrorString(ncclSuccess), "no error");
}

}  // namespace
}  // namespace cohort::worker
