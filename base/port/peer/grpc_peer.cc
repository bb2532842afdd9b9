#include "base/port/peer/grpc_peer.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/rpc/random_bits.h"
#include "base/threads/mutex.h"

namespace cohort {
namespace {

// The names of connections: "cohort-", a number that cannot be guessed, "-", the connection's.
class Clients {
 public:
  static Clients& Get() {
    static auto* const clients = new Clients();
    return *clients;
  }

  uint64_t Add(GrpcClient client) {
    MutexLock lock(&mutex_);
    clients_.emplace(++last_, std::move(client));
    return last_;
  }
  void Remove(uint64_t number) {
    MutexLock lock(&mutex_);
    clients_.erase(number);
  }
  std::string NameOf(uint64_t number) const { return absl::StrCat(begin_, number); }
  GrpcClient Find(absl::string_view peer) {
    uint64_t number = 0;
    if (!absl::ConsumePrefix(&peer, "unix-abstract:") || !absl::ConsumePrefix(&peer, begin_) ||
        !absl::SimpleAtoi(peer, &number)) {
      return {};
    }
    MutexLock lock(&mutex_);
    const auto found = clients_.find(number);
    return found == clients_.end() ? GrpcClient() : found->second;
  }

 private:
  const std::string begin_ = absl::StrCat("cohort-", absl::Hex(RandomBits().high), "-");
  Mutex mutex_;
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<uint64_t, GrpcClient> clients_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

GrpcPeerName::GrpcPeerName(GrpcClient client) : number_(Clients::Get().Add(std::move(client))) {}

GrpcPeerName::GrpcPeerName(GrpcPeerName&& other) noexcept
    : number_(std::exchange(other.number_, 0)) {}

GrpcPeerName::~GrpcPeerName() {
  if (number_ != 0) Clients::Get().Remove(number_);
}

std::string GrpcPeerName::text() const { return Clients::Get().NameOf(number_); }

GrpcClient ClientOfGrpcPeer(const std::string& peer) { return Clients::Get().Find(peer); }

}  // namespace cohort
