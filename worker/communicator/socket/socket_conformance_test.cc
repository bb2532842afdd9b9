#include "worker/communicator/socket/testing/socket_group.h"
#include "worker/communicator/testing/conformance.h"

namespace cohort::worker {
namespace {

Backend WithStreams(int streams, const std::vector<int>& sizes) {
  SocketOptions options;
  options.streams = streams;
  return {"socket", sizes, [options](int size) {
            Communicators ranks;
            for (auto& rank : TestGroup(size).ConnectAll(options)) ranks.push_back(std::move(rank));
            return ranks;
          }};
}

INSTANTIATE_TEST_SUITE_P(Socket, ConformanceTest,
                         ::testing::Values(WithStreams(2, {1, 2, 3, 4, 5, 7, 8}),
                                           WithStreams(1, {2, 3}), WithStreams(5, {2, 3})));

}  // namespace
}  // namespace cohort::worker
