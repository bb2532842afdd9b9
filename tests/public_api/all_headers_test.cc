// Collectives, tensor maps, queues and groups of all forms in one file, linked into one program.
#include "tests/public_api/all_headers.h"

// Users choose their own gRPC and protobuf, so no public header may include either: there is no
// exception. Every header of protobuf defines the first macro, and of gRPC one of the others.
#if defined(GOOGLE_PROTOBUF_VERSION)
#error "a public header includes protobuf"
#endif
#if defined(GRPC_IMPL_CODEGEN_PORT_PLATFORM_H) || defined(GRPC_SUPPORT_PORT_PLATFORM_H) || \
    defined(GRPCPP_CHANNEL_H) || defined(GRPCPP_SUPPORT_STATUS_H) ||                       \
    defined(GRPCPP_CLIENT_CONTEXT_H) || defined(GRPCPP_SUPPORT_CONFIG_H)
#error "a public header includes gRPC"
#endif

#include <set>
#include <typeindex>
#include <typeinfo>

#include "gtest/gtest.h"

namespace cohort {
namespace {

// These options once had one name in two headers.
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
