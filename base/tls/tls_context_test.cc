#include "base/tls/tls_context.h"

#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/tls/testing/certificates.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::AllOf;
using testing::CertificateAuthority;
using ::testing::HasSubstr;

const Instant kStart = absl::UnixEpoch() + absl::Hours(1);

std::string Folder() { return ::testing::TempDir(); }

TlsFiles NewFiles() {
  return CertificateAuthority(Folder()).Sign("server", {"server", "DNS:localhost"});
}

TEST(TlsContextTest, FilesThatCannotBeUsedAreNamed) {
  const TlsFiles good = NewFiles();
  const auto message = [](const TlsFiles& files, TlsSide side) {
    const auto loaded = TlsContext::Load(files, side);
    EXPECT_EQ(loaded.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(loaded.status().message());
  };
  TlsFiles bad = good;
  bad.certificate = Folder() + "/none.crt";
  EXPECT_THAT(message(bad, TlsSide::kServer),
              AllOf(HasSubstr("none.crt"), HasSubstr("No such file")));
  bad = good;
  bad.key = good.ca;
  EXPECT_THAT(message(bad, TlsSide::kServer), HasSubstr(good.ca));
  bad = good;
  bad.key = CertificateAuthority(Folder()).Sign("other", {"other", ""}).key;
  EXPECT_THAT(message(bad, TlsSide::kServer), HasSubstr("key"));
  bad = good;
  bad.ca = good.key;
  EXPECT_THAT(message(bad, TlsSide::kClient), HasSubstr(good.key));
  bad = good;
  bad.key.clear();
  EXPECT_THAT(message(bad, TlsSide::kClient), HasSubstr("needs a key"));
  EXPECT_THAT(message({"", "", good.ca}, TlsSide::kServer), HasSubstr("needs a certificate"));
  EXPECT_TRUE(TlsContext::Load({"", "", good.ca}, TlsSide::kClient).ok());
}

TEST(TlsContextTest, NewFilesAreTakenWithinASecond) {
  const TlsFiles files = NewFiles();
  const auto context = TlsContext::Load(files, TlsSide::kServer);
  ASSERT_TRUE(context.ok()) << context.status();
  const auto first = (*context)->Current(kStart);
  NewFiles();
  EXPECT_EQ((*context)->Current(kStart + absl::Milliseconds(999)), first);
  const auto second = (*context)->Current(kStart + absl::Seconds(1));
  EXPECT_NE(second, first);
  EXPECT_EQ((*context)->reloads(), 1);
  EXPECT_EQ((*context)->Current(kStart + absl::Seconds(3)), second);
}

TEST(TlsContextTest, BadFilesChangeNothing) {
  const TlsFiles files = NewFiles();
  const auto context = TlsContext::Load(files, TlsSide::kServer);
  ASSERT_TRUE(context.ok()) << context.status();
  const auto first = (*context)->Current(kStart);
  std::ofstream(files.certificate) << "no certificate";
  EXPECT_EQ((*context)->Current(kStart + absl::Seconds(1)), first);
  EXPECT_THAT(std::string((*context)->last_error().message()), HasSubstr(files.certificate));
  unlink(files.certificate.c_str());
  EXPECT_EQ((*context)->Current(kStart + absl::Seconds(2)), first);
  EXPECT_THAT(std::string((*context)->last_error().message()), HasSubstr("No such file"));
  // OpenSSL would wait for a writer.
  ASSERT_EQ(mkfifo(files.certificate.c_str(), 0600), 0);
  EXPECT_EQ((*context)->Current(kStart + absl::Seconds(2.5)), first);
  EXPECT_EQ((*context)->Current(kStart + absl::Seconds(4)), first);
  EXPECT_THAT(std::string((*context)->last_error().message()), HasSubstr("not a regular file"));
  unlink(files.certificate.c_str());
  NewFiles();
  EXPECT_NE((*context)->Current(kStart + absl::Seconds(6)), first);
  EXPECT_EQ((*context)->last_error(), absl::OkStatus());
  EXPECT_EQ((*context)->reloads(), 1);
}

TEST(TlsContextTest, EachFileOfCasIsReadAgain) {
  TlsFiles files = NewFiles();
  const CertificateAuthority partner(Folder(), "partner");
  files.client_cas = {"prod=" + files.ca, "partner=" + partner.path()};
  files.ca.clear();
  const auto context = TlsContext::Load(files, TlsSide::kServer);
  ASSERT_TRUE(context.ok()) << context.status();
  const auto first = (*context)->Current(kStart);
  EXPECT_EQ(sk_X509_NAME_num(SSL_CTX_get_client_CA_list(first.get())), 2);
  const CertificateAuthority renewed(Folder(), "partner");
  const auto second = (*context)->Current(kStart + absl::Seconds(1));
  EXPECT_NE(second, first);
  std::ofstream(partner.path()) << "no certificate";
  EXPECT_EQ((*context)->Current(kStart + absl::Seconds(2)), second);
  EXPECT_THAT(std::string((*context)->last_error().message()), HasSubstr(partner.path()));
}

TEST(TlsContextTest, OpenSslKeepsItsStateWhenTheProcessExits) {
  ASSERT_TRUE(TlsContext::Load(NewFiles(), TlsSide::kServer).ok());
  const auto exit_with_handler = [] {
    OPENSSL_atexit([] { _exit(7); });  // called when OpenSSL frees its state
    std::exit(0);
  };
  EXPECT_EXIT(exit_with_handler(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace cohort
