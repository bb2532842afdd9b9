// Sockets in a folder: who may connect, and which files go away.
#include "base/shm/host_folder.h"

#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/shm/local_socket.h"
#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::shm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kVariable[] = "COHORT_HOST_FOLDER";

Instant Soon() { return Clock::Steady().Now() + absl::Seconds(20); }

class HostFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/host-folder-XXXXXX";  // a socket's path is short
    ASSERT_NE(mkdtemp(path), nullptr);
    path_ = path;
    const absl::StatusOr<HostFolder> folder = HostFolder::Open(path_);
    ASSERT_TRUE(folder.ok()) << folder.status();
    folder_ = *folder;
  }
  void TearDown() override {
    unsetenv(kVariable);
    for (const char* const name : {"file", "link", "cohort-0123456789abcdef", "cohort-link"}) {
      unlink(Path(name).c_str());
    }
    EXPECT_EQ(rmdir(path_.c_str()), 0) << "files are left";
  }

  std::string Path(const std::string& name) const { return absl::StrCat(path_, "/", name); }
  static bool Exists(const std::string& path) {
    struct stat found = {};
    return lstat(path.c_str(), &found) == 0;
  }

  std::string path_;
  HostFolder folder_;
};

TEST_F(HostFolderTest, TheVariableCountsWithoutAPath) {
  EXPECT_TRUE(HostFolder::Open()->empty());
  setenv(kVariable, "", 1);
  EXPECT_TRUE(HostFolder::Open()->empty());
  setenv(kVariable, path_.c_str(), 1);
  EXPECT_EQ(HostFolder::Open()->path(), path_);
  EXPECT_EQ(HostFolder::Open()->id(), folder_.id());
  EXPECT_EQ(HostFolder::Open("/")->path(), "/");
}

TEST_F(HostFolderTest, TheSameFolderHasOneIdUnderAllItsPaths) {
  ASSERT_EQ(symlink(path_.c_str(), Path("link").c_str()), 0);
  EXPECT_EQ(HostFolder::Open(Path("link"))->id(), folder_.id());
  EXPECT_NE(HostFolder::Open("/tmp")->id(), folder_.id());
}

TEST_F(HostFolderTest, AWrongValueIsAnErrorThatNamesIt) {
  std::ofstream(Path("file")) << "x";
  const std::string long_path = absl::StrCat("/", std::string(HostFolder::kMaxPath, 'x'));
  const std::pair<std::string, std::string> wrong[] = {{"tmp", "begins with /"},
                                                       {long_path, "at most 83 bytes, got 84"},
                                                       {Path("none"), "No such file or directory"},
                                                       {Path("file"), "it is not a folder"}};
  for (const auto& [value, why] : wrong) {
    setenv(kVariable, value.c_str(), 1);
    for (const bool option : {false, true}) {
      const absl::Status status = HostFolder::Open(option ? value : "").status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()),
                  AllOf(StartsWith(absl::StrCat(option ? "host_folder" : kVariable, " is \"", value,
                                                "\": ")),
                        HasSubstr(why)));
    }
  }
}

TEST_F(HostFolderTest, AListenerHasANameAndAFile) {
  absl::StatusOr<LocalListener> listener = LocalListener::Create(folder_);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const std::string path = folder_.AddressOf(listener->name(), folder_.id());
  EXPECT_EQ(path, Path(listener->name()));
  EXPECT_LE(path.size(), path_.size() + 24);
  struct stat found = {};
  ASSERT_EQ(stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0600u);
  for (const std::string& address : {path, listener->name()}) {
    const absl::StatusOr<LocalSocket> client = LocalSocket::Connect(address, Soon());
    ASSERT_TRUE(client.ok()) << client.status();
    const absl::StatusOr<LocalSocket> server = listener->Accept(Soon());
    ASSERT_TRUE(server.ok()) << server.status();
    ASSERT_TRUE(client->Send("hello", {}, Soon()).ok());
    EXPECT_EQ(server->Receive(Soon())->bytes, "hello");
  }
  EXPECT_EQ(listener->Accept(absl::InfinitePast()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  *listener = LocalListener();
  EXPECT_FALSE(Exists(path));
  EXPECT_THAT(std::string(LocalSocket::Connect(path, Soon()).status().message()),
              AllOf(HasSubstr(path), HasSubstr("No such file")));
}

// A thread of this process is in another network namespace.
TEST_F(HostFolderTest, OnlyTheFileLeadsToAnotherNetworkNamespace) {
  const LocalListener listener = *LocalListener::Create(folder_);
  absl::StatusOr<LocalSocket> by_name, by_file;
  bool is_elsewhere = false;
  std::thread other([&] {
    is_elsewhere = unshare(CLONE_NEWNET) == 0;
    by_name = LocalSocket::Connect(listener.name(), Soon());
    by_file = LocalSocket::Connect(folder_.AddressOf(listener.name(), folder_.id()), Soon());
  });
  other.join();
  if (!is_elsewhere) GTEST_SKIP() << "needs the right to make network namespaces";
  EXPECT_EQ(by_name.status().message(), "connecting: Connection refused");
  ASSERT_TRUE(by_file.ok()) << by_file.status();
  const LocalSocket server = *listener.Accept(Soon());
  ASSERT_TRUE(by_file->Send("hello", {}, Soon()).ok());
  EXPECT_EQ(server.Receive(Soon())->bytes, "hello");
}

TEST_F(HostFolderTest, AFloodAtTheNameDoesNotDelayTheFile) {
  const LocalListener listener = *LocalListener::Create(folder_);
  std::vector<LocalSocket> flood;
  for (int i = 0; i < 100; ++i) flood.push_back(*LocalSocket::Connect(listener.name(), Soon()));
  const std::string path = folder_.AddressOf(listener.name(), folder_.id());
  const LocalSocket client = *LocalSocket::Connect(path, Soon());
  ASSERT_TRUE(client.Send("file", {}, Soon()).ok());
  int files = 0;
  for (int i = 0; i < 2; ++i) {
    const absl::StatusOr<LocalSocket> server = listener.Accept(Soon());
    files += server->Receive(absl::InfinitePast()).ok() ? 1 : 0;
  }
  EXPECT_EQ(files, 1);
}

TEST_F(HostFolderTest, AfterRejectAllNoConnectionWaits) {
  const LocalListener listener = *LocalListener::Create(folder_);
  const std::string path = folder_.AddressOf(listener.name(), folder_.id());
  std::vector<LocalSocket> clients;
  for (const std::string& address : {path, listener.name()}) {
    clients.push_back(*LocalSocket::Connect(address, Soon()));
  }
  listener.RejectAll();
  for (const LocalSocket& client : clients) {
    EXPECT_EQ(client.Receive(Soon()).status().code(), absl::StatusCode::kUnavailable);
  }
  for (const std::string& address : {path, listener.name()}) {
    EXPECT_EQ(LocalSocket::Connect(address, Soon()).status().code(),
              absl::StatusCode::kUnavailable);
  }
}

// Another process sends the name.
TEST_F(HostFolderTest, NoNameLeadsOutOfTheFolder) {
  EXPECT_EQ(folder_.AddressOf("../../etc/cohort-1", folder_.id()), Path("cohort-1"));
  EXPECT_EQ(folder_.AddressOf("/run/docker.sock", "another"), "docker.sock");
  EXPECT_EQ(HostFolder().AddressOf("/run/docker.sock", ""), "docker.sock");
  EXPECT_EQ(folder_.AddressOf("cohort-1", ""), "cohort-1");
}

TEST_F(HostFolderTest, AForkedChildLeavesTheFileOfItsParent) {
  const LocalListener listener = *LocalListener::Create(folder_);
  const pid_t child = fork();
  if (child == 0) {
    const_cast<LocalListener&>(listener) = LocalListener();
    _exit(0);
  }
  int how = 0;
  ASSERT_EQ(waitpid(child, &how, 0), child);
  EXPECT_TRUE(Exists(folder_.AddressOf(listener.name(), folder_.id())));
}

TEST_F(HostFolderTest, AFolderThatCannotBeWrittenToIsAnErrorThatNamesIt) {
  const std::string read_only = "/proc/self/fd";
  const absl::StatusOr<HostFolder> folder = HostFolder::Open(read_only);
  ASSERT_TRUE(folder.ok()) << folder.status();
  const absl::Status status = LocalListener::Create(*folder).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              StartsWith("host_folder is \"/proc/self/fd\": making a socket in it: "));
}

// Leaves the socket of a process that ended without removing it.
void LeaveSocket(const std::string& path) {
  const UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
}

TEST_F(HostFolderTest, StaleSocketsAreRemovedAndNothingElse) {
  const std::string stale = Path("cohort-0123456789abcdef");
  LeaveSocket(stale);
  std::ofstream(Path("file")) << "x";
  ASSERT_EQ(symlink(stale.c_str(), Path("cohort-link").c_str()), 0);
  const LocalListener live = *LocalListener::Create(folder_);
  folder_.RemoveStale();
  EXPECT_TRUE(Exists(stale)) << "it is too new: its process may be about to listen";
  folder_.RemoveStale(absl::ZeroDuration());
  EXPECT_FALSE(Exists(stale));
  EXPECT_TRUE(Exists(Path("file")));
  EXPECT_TRUE(Exists(Path("cohort-link")));
  EXPECT_TRUE(Exists(folder_.AddressOf(live.name(), folder_.id())));
  // The look did not reach the process that listens.
  EXPECT_EQ(live.Accept(absl::InfinitePast()).status().code(), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace cohort::shm
