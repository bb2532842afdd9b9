#include "base/access/peer_names.h"

#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/rpc/client_names.h"
#include "base/testing/user_namespace.h"
#include "base/tls/peer_certificate.h"
#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(NamesOfPeerTest, CertificateThenSocketThenNothing) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const UniqueFd near(pair[0]), far(pair[1]);
  const UniqueFd tcp(socket(AF_INET, SOCK_STREAM, 0));
  const std::string user = absl::StrCat("uid:", geteuid());
  EXPECT_THAT(NamesOfPeer(near.get(), nullptr), ElementsAre(user));
  EXPECT_THAT(NamesOfPeer(tcp.get(), nullptr), ElementsAre("anonymous"));
  PeerCertificate certificate;
  EXPECT_THAT(NamesOfPeer(near.get(), &certificate), ElementsAre(user));
  EXPECT_THAT(NamesOfPeer(tcp.get(), &certificate), ElementsAre("anonymous-tls"));
  certificate.common_name = "uid:0";
  EXPECT_THAT(NamesOfPeer(near.get(), &certificate), ElementsAre("cn:uid:0"));
  certificate.dns_names = {"a.example", "b.example"};
  EXPECT_THAT(NamesOfPeer(tcp.get(), &certificate), ElementsAre("dns:a.example", "dns:b.example"));
  // A URI that could be taken for another name is left out.
  certificate.uris = {"uid:0",     "token:ci",  "dns:c.example", "cn:root",
                      "jwt:k8s:a", "anonymous", "https://a/x"};
  EXPECT_THAT(NamesOfPeer(tcp.get(), &certificate),
              ElementsAre("https://a/x", "dns:a.example", "dns:b.example"));
}

TEST(NamesOfPeerTest, ACertificateThatBreaksTheRulesOfSpiffeHasNoName) {
  const UniqueFd tcp(socket(AF_INET, SOCK_STREAM, 0));
  const auto names_of = [&tcp](std::vector<std::string> uris) {
    PeerCertificate certificate;
    certificate.uris = std::move(uris);
    certificate.dns_names = {"a.example"};
    return NamesOfPeer(tcp.get(), &certificate);
  };
  EXPECT_THAT(names_of({"spiffe://prod/ns/a"}), ElementsAre("spiffe://prod/ns/a", "dns:a.example"));
  EXPECT_THAT(names_of({"spiffe://prod/ns/a", "spiffe://prod/ns/b"}), ElementsAre("anonymous-tls"));
  EXPECT_THAT(names_of({"https://a/x", "spiffe://prod/ns/b"}), ElementsAre("anonymous-tls"));
  EXPECT_THAT(names_of({"spiffe://prod/ns/a/../b"}), ElementsAre("anonymous-tls"));
  EXPECT_THAT(names_of({"Spiffe://prod/ns/a"}), ElementsAre("anonymous-tls"));
}

TEST(NamesOfPeerTest, NoNameLooksLikeThatOfAClientThroughAWorker) {
  const UniqueFd tcp(socket(AF_INET, SOCK_STREAM, 0));
  PeerCertificate certificate;
  certificate.uris = {"https://a through https://w"};
  certificate.dns_names = {"a through b"};
  EXPECT_THAT(NamesOfPeer(tcp.get(), &certificate), ElementsAre("anonymous-tls"));
  certificate.uris.clear();
  certificate.dns_names.clear();
  certificate.common_name = "a through b";
  EXPECT_THAT(NamesOfPeer(tcp.get(), &certificate), ElementsAre("anonymous-tls"));
}

TEST(NamesOfPeerTest, ANameIsUtf8) {
  const UniqueFd tcp(socket(AF_INET, SOCK_STREAM, 0));
  PeerCertificate certificate;
  certificate.uris = {"https://\xff"};
  EXPECT_THAT(NamesOfPeer(tcp.get(), &certificate), ElementsAre("anonymous-tls"));
}

// The kernel tells the overflow user for each user whom the namespace does not map.
TEST(NamesOfPeerTest, AUserOutsideTheNamespaceHasNoName) {
  if (!testing::HasUserNamespaces()) GTEST_SKIP() << "needs user namespaces";
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        int pair[2];
        const bool ready =
            socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && testing::EnterUserNamespace();
        const bool anonymous =
            NamesOfPeer(pair[0], nullptr) == std::vector<std::string>{"anonymous"};
        _exit(ready && anonymous ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(SpiffeIdTest, HasATrustDomainAndPlainSegments) {
  for (const char* id :
       {"spiffe://prod", "spiffe://prod.example-1_a/ns/A.b-c_9", "spiffe://p/..."}) {
    EXPECT_TRUE(IsSpiffeId(id)) << id;
  }
  for (const char* id :
       {"spiffe:/prod/a", "spiffe://", "spiffe:///a", "spiffe://Prod/a", "spiffe://prod/",
        "spiffe://prod//a", "spiffe://prod/.", "spiffe://prod/../a", "spiffe://prod/a b",
        "spiffe://prod/a%2e", "spiffe://u@prod/a", "spiffe://prod:1/a", "spiffe://prod/a?b",
        "spiffe://prod/a#b", "SPIFFE://prod/a", "https://prod/a", ""}) {
    EXPECT_FALSE(IsSpiffeId(id)) << id;
  }
  EXPECT_TRUE(IsSpiffeId(absl::StrCat("spiffe://p/", std::string(2048 - 11, 'a'))));
  EXPECT_FALSE(IsSpiffeId(absl::StrCat("spiffe://p/", std::string(2048 - 10, 'a'))));
  EXPECT_FALSE(IsSpiffeId(absl::StrCat("spiffe://", std::string(256, 'a'))));
}

TEST(ClientNamesTest, TravelAsAList) {
  const std::vector<std::string> names = {"spiffe://prod/a", "dns:b"};
  EXPECT_EQ(DecodeClientNames(EncodeClientNames(names)), names);
  EXPECT_EQ(EncodeClientNames({}), "");
  // As many as there is room for.
  const std::vector<std::string> many(100, std::string(1000, 'x'));
  EXPECT_EQ(DecodeClientNames(EncodeClientNames(many)).size(), 8);
}

TEST(ClientNamesTest, WrongListsHaveNoName) {
  using std::string_literals::operator""s;
  EXPECT_THAT(DecodeClientNames(""), IsEmpty());
  EXPECT_THAT(DecodeClientNames("a"), IsEmpty());
  EXPECT_THAT(DecodeClientNames("\0"s), IsEmpty());
  EXPECT_THAT(DecodeClientNames("a\0\0"s), IsEmpty());
  EXPECT_THAT(DecodeClientNames("a\0b through c\0"s), IsEmpty());
  EXPECT_THAT(DecodeClientNames("\xff\0"s), IsEmpty());
  EXPECT_THAT(DecodeClientNames(std::string(2049, 'a') + '\0'), IsEmpty());
  EXPECT_THAT(DecodeClientNames(std::string(kMaxClientNamesBytes, 'a') + '\0'), IsEmpty());
}

}  // namespace
}  // namespace cohort
