// Collectives, tensor maps, queues and groups of all forms in one file, linked into one program.
#include "tests/public_api/all_headers.h"

#include <set>
#include <typeindex>
#include <typeinfo>

#include "gtest/gtest.h"

namespace cohort {
namespace {

// Uses what once had one name in two headers.
TEST(AllHeadersTest, OptionsOfCollectivesAndOfMapsAreTypesOfTheirOwn) {
  const std::set<std::type_index> types = {
      typeid(parallel::GatherOptions), typeid(parallel::MapGatherOptions),
      typeid(parallel::SendMapOptions), typeid(parallel::AllGatherOptions)};
  EXPECT_EQ(types.size(), 4u);
}

TEST(AllHeadersTest, AFunctionOfEachLibraryIsThere) {
  EXPECT_NE(reinterpret_cast<void*>(&client::ProcessGroup::Create), nullptr);
  EXPECT_NE(reinterpret_cast<void*>(&client::RemoteGroup::Create), nullptr);
  EXPECT_NE(reinterpret_cast<void*>(&worker::LocalGroup::Create), nullptr);
  EXPECT_NE(reinterpret_cast<void*>(&worker::AttachedGroup::Create), nullptr);
  EXPECT_NE(reinterpret_cast<void*>(&parallel::MessageQueue::Open), nullptr);
  EXPECT_NE(reinterpret_cast<void*>(&checkpoint::ParseHeader), nullptr);
}

}  // namespace
}  // namespace cohort
