// A file with the roles of identities in tenants.
//
//   {"rules": [
//     {"identity": "spiffe://prod/ns/team-a/*", "tenant": "team-a", "role": "member"},
//     {"identity": "uid:0", "tenant": "*", "role": "operator"}
//   ], "tokens": [
//     {"name": "ci", "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}
//   ], "issuers": [
//     {"name": "k8s", "issuer": "https://kubernetes.default.svc", "audience": "cohort",
//      "jwks": "/etc/cohort/jwks.json"}
//   ]}
//
// docs/security.md describes it for users.
#ifndef COHORT_BASE_ACCESS_ACCESS_POLICY_H_
#define COHORT_BASE_ACCESS_ACCESS_POLICY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/access/role.h"
#include "base/access/token_issuers.h"
#include "base/clock.h"
#include "base/threads/mutex.h"
#include "nlohmann/json_fwd.hpp"

namespace cohort {

// All tenants, in a rule. A method that concerns the whole server needs its role in them.
inline constexpr absl::string_view kAllTenants = "*";
// The tenant of a request that names none.
inline constexpr absl::string_view kDefaultTenant = "default";

// The rights of one identity: those of all rules that match it.
struct Rights {
  struct Grant {
    std::string tenant;
    Role role = Role::kNone;
  };
  std::vector<Grant> grants;  // in the order of the rules
  // The name of the client in errors and in the log, and the owner of its sessions.
  std::shared_ptr<const std::string> identity;
  // The rights of the worker that calls in the name of the client; no role is higher than its.
  // Null: the client calls itself.
  std::shared_ptr<const Rights> caller;

  // The highest role. `tenant` may be kAllTenants.
  Role RoleIn(absl::string_view tenant) const;
  // The highest role in any tenant, or above.
  Role HighestRole() const;
  // The tenant of the first grant that names one; empty: none does.
  absl::string_view OwnTenant() const;
  // The tenant of a request that names `tenant`: the client's own one if it is kDefaultTenant and
  // the client has no role there.
  absl::string_view ResolveTenant(absl::string_view tenant) const;
  // The identity that pays for refused calls: a caller may invent clients.
  const std::string& payer() const { return caller == nullptr ? *identity : *caller->identity; }
};

// The rights of a client that shows a signed token, as long as the token is valid.
struct SignedTokenRights {
  TokenIdentity identity;
  Rights rights;
};

// Thread-safe.
class AccessPolicy {
 public:
  using WallClock = std::function<absl::Time()>;

  // Signed tokens end at a time of the day, which `wall_clock` tells.
  // Errors: INVALID_ARGUMENT with the path and the reason.
  static absl::StatusOr<std::unique_ptr<AccessPolicy>> Load(std::string path,
                                                            WallClock wall_clock = absl::Now);

  // The policy of a server that asks for certificates and was given no file. A client with a
  // certificate is a member in every tenant. A client of a Unix socket with this process's own user
  // is an operator. Other clients have no rights, whatever their address: a port forwarder, a
  // sidecar and a proxy connect from this machine, too.
  static std::unique_ptr<AccessPolicy> WithoutFile();

  // The rights of a peer that has all of these names; a rule that matches one of them counts. The
  // first name is its identity. Precondition: there is one.
  Rights RightsOf(const std::vector<std::string>& names) const;
  // The rights that a client with these names still has, some time after it came. A token that is
  // no longer in the list gives no rights. A signed token counts beyond its end.
  Rights RemainingRightsOf(const std::vector<std::string>& names) const;
  // The rights of a peer that shows a bearer token with this hash (HashToken). Its one name is
  // "token:NAME". Nothing: the policy does not have the hash.
  std::optional<Rights> RightsOfToken(const std::string& hash) const;
  // Whether a token counts in place of the names of its connection. It does not if there is no
  // file.
  bool takes_tokens() const { return !path_.empty(); }
  // Whether the policy trusts issuers of signed tokens.
  bool has_issuers() const;
  // The client of a signed token. Checks its signature, so it takes up to 2 ms. Errors: VerifyJwt.
  absl::StatusOr<SignedTokenRights> RightsOfSignedToken(absl::string_view token) const;
  // Grows when other rules or other keys of an issuer are taken. Unless a PolicyWatch does so, it
  // reads the files again if they have changed, and looks for that once a second at most. A file
  // that cannot be used changes nothing, and is read again at the next look; the log says why.
  int64_t Version(Instant now);
  // Whether the file, and those with the keys of issuers, could be used when they were last read.
  bool file_is_usable() const { return file_is_usable_.load(std::memory_order_relaxed); }
  bool keys_are_usable() const;

  absl::Time WallNow() const { return wall_clock_(); }

 private:
  friend class PolicyWatch;
  struct Rule {
    std::string identity;  // without the "*" at its end
    bool is_prefix = false;
    Rights::Grant grant;
  };
  // The rules with each identity, by their places in `grants`.
  using Places = absl::flat_hash_map<std::string, std::vector<size_t>>;
  struct Content {
    std::vector<Rights::Grant> grants;  // of all rules, in their order
    Places exact;
    Places prefixes;
    std::set<size_t> prefix_sizes;        // a look-up in `prefixes` for each
    std::vector<size_t> any_certificate;  // rules for all clients with a certificate
    absl::flat_hash_map<std::string, std::string> token_names;  // by hash
    absl::flat_hash_set<std::string> tokens;                    // by name
    std::vector<TokenIssuer> issuers;

    void Add(Rule rule);
    Rights RightsOf(const std::vector<std::string>& names) const;
  };

  AccessPolicy(std::string path, WallClock wall_clock)
      : path_(std::move(path)), wall_clock_(std::move(wall_clock)) {}
  static absl::StatusOr<Content> Read(const std::string& path,
                                      const std::vector<TokenIssuer>& issuers_before);
  static absl::StatusOr<Rule> ReadRule(const nlohmann::json& entry);
  std::shared_ptr<const Content> content() const;
  void ReadAgain();
  void TakeFile(std::string stamp);
  void TakeKeys();

  const std::string path_;  // empty: there is no file
  const WallClock wall_clock_;
  std::atomic<int64_t> version_{0};
  std::atomic<int64_t> next_look_ms_{0};
  std::atomic<bool> watched_{false};
  std::atomic<bool> file_is_usable_{true};
  mutable Mutex mutex_;
  std::shared_ptr<const Content> content_ ABSL_GUARDED_BY(mutex_);
  // Only the thread that has set `reading_` uses these.
  std::atomic<bool> reading_{false};
  std::string stamp_;  // of the file when it was last read; empty: it could not be used
  std::string last_error_;
};

}  // namespace cohort

#endif  // COHORT_BASE_ACCESS_ACCESS_POLICY_H_
