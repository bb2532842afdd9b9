#include "tests/amplification/listening_sockets.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace cohort::amplification {
namespace {

constexpr char kTcpListens[] = "0A";
// __SO_ACCEPTCON of the kernel.
constexpr char kUnixListens[] = "00010000";

std::set<std::string> InodesOf(pid_t pid) {
  std::set<std::string> inodes;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/fd"), error)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    constexpr absl::string_view kSocket = "socket:[";
    if (target.compare(0, kSocket.size(), kSocket.data()) != 0) continue;
    inodes.insert(target.substr(kSocket.size(), target.size() - kSocket.size() - 1));
  }
  return inodes;
}

void ForEachLine(const std::string& path,
                 const std::function<void(const std::vector<std::string>& words)>& use) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);  // the names of the columns
  while (std::getline(file, line)) use(absl::StrSplit(line, ' ', absl::SkipEmpty()));
}

}  // namespace

std::set<std::string> ListeningSockets(pid_t pid) {
  const std::set<std::string> inodes = InodesOf(pid);
  std::set<std::string> sockets;
  for (const char* const file : {"tcp", "tcp6"}) {
    ForEachLine(absl::StrCat("/proc/", pid, "/net/", file), [&](const auto& words) {
      if (words.size() < 10 || words[3] != kTcpListens || inodes.count(words[9]) == 0) return;
      const std::string port = words[1].substr(words[1].rfind(':') + 1);
      sockets.insert(absl::StrCat("port ", std::stoi(port, nullptr, 16)));
    });
  }
  ForEachLine(absl::StrCat("/proc/", pid, "/net/unix"), [&](const auto& words) {
    if (words.size() < 8 || words[3] != kUnixListens || inodes.count(words[6]) == 0) return;
    sockets.insert(words[7]);
  });
  return sockets;
}

}  // namespace cohort::amplification
