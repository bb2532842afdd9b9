#include "worker/communicator/nccl/testing/nccl_ranks.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "gtest/gtest.h"
#include "worker/communicator/host/host_communicator.h"

namespace cohort::worker {

std::vector<std::unique_ptr<Communicator>> MakeHosts(int size) {
  absl::StatusOr<HostSpace> space = HostSpace::Create(size);
  EXPECT_TRUE(space.ok()) << space.status();
  std::vector<std::unique_ptr<Communicator>> hosts;
  for (int rank = 0; rank < size; ++rank) {
    absl::StatusOr<HostSpace> mapped = HostSpace::Attach(dup(space->fd()), size);
    EXPECT_TRUE(mapped.ok()) << mapped.status();
    hosts.push_back(std::make_unique<HostCommunicator>(
        HostMemory{*std::move(mapped), RankHeaps(static_cast<size_t>(size))}, rank));
  }
  return hosts;
}

NcclRanks FormNcclRanks(const std::shared_ptr<FakeNcclApi>& nccl, int size, Instant deadline,
                        const NcclRanksOptions& options) {
  std::vector<std::unique_ptr<Communicator>> hosts = MakeHosts(size);
  const absl::StatusOr<NcclBoard> board = NcclBoard::Create(size);
  EXPECT_TRUE(board.ok()) << board.status();
  const absl::StatusOr<std::string> id = NewNcclId(*nccl);
  EXPECT_TRUE(id.ok()) << id.status();
  NcclRanks ranks(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    if (std::find(options.absent.begin(), options.absent.end(), rank) != options.absent.end()) {
      continue;
    }
    threads.emplace_back([&, rank] {
      NcclFormation formation;
      formation.nccl = nccl;
      formation.device = rank;
      formation.compute_capability = kFakeComputeCapability;
      formation.ids = {*id};
      formation.name = "test";
      NcclRank& formed = ranks[static_cast<size_t>(rank)];
      formed.host = std::move(hosts[static_cast<size_t>(rank)]);
      formation.host = formed.host.get();
      formation.agreement = options.agreement;
      if (options.board) {
        absl::StatusOr<NcclBoard> attached = NcclBoard::Attach(dup(board->fd()), size);
        EXPECT_TRUE(attached.ok()) << attached.status();
        formation.board = std::make_shared<const NcclBoard>(*std::move(attached));
      }
      options.differ(rank, formation);
      formed.nccl = NcclCommunicator::Form(std::move(formation), deadline);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

}  // namespace cohort::worker
