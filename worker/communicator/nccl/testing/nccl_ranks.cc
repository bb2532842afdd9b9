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
  absl::StatusOr<HostSharedMemory> space = HostSharedMemory::Create(size);
  EXPECT_TRUE(space.ok()) << space.status();
  std::vector<std::unique_ptr<Communicator>> hosts;
  for (int rank = 0; rank < size; ++rank) {
    absl::StatusOr<HostSharedMemory> mapped = HostSharedMemory::Attach(dup(space->fd()), size);
    EXPECT_TRUE(mapped.ok()) << mapped.status();
    hosts.push_back(std::make_unique<HostCommunicator>(
        HostMemory{*std::move(mapped), RankHeaps(static_cast<size_t>(size))}, rank));
  }
  return hosts;
}

NcclRanks FormNcclRanks(const std::shared_ptr<FakeNcclApi>& nccl, int size, Instant deadline,
                        const NcclRanksOptions& options) {
  std::vector<std::unique_ptr<Communicator>> hosts = MakeHosts(size);
  const absl::StatusOr<NcclOperationLog> operation_log = NcclOperationLog::Create(size);
  EXPECT_TRUE(operation_log.ok()) << operation_log.status();
  const absl::StatusOr<std::string> id = NewNcclId(*nccl);
  EXPECT_TRUE(id.ok()) << id.status();
  NcclRanks ranks(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    if (std::find(options.absent.begin(), options.absent.end(), rank) != options.absent.end()) {
      continue;
    }
    threads.emplace_back([&, rank] {
      NcclCommunicatorInit init;
      init.nccl = nccl;
      init.device = rank;
      init.compute_capability = kFakeComputeCapability;
      init.ids = {*id};
      init.name = "test";
      NcclRank& formed = ranks[static_cast<size_t>(rank)];
      formed.host = std::move(hosts[static_cast<size_t>(rank)]);
      init.host = formed.host.get();
      init.agreement = options.agreement;
      if (options.operation_log) {
        absl::StatusOr<NcclOperationLog> attached =
            NcclOperationLog::Attach(dup(operation_log->fd()), size);
        EXPECT_TRUE(attached.ok()) << attached.status();
        init.operation_log = std::make_shared<const NcclOperationLog>(*std::move(attached));
      }
      options.differ(rank, init);
      formed.nccl = NcclCommunicator::Form(std::move(init), deadline);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

}  // namespace cohort::worker
