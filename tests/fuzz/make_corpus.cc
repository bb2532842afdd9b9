// Writes the seed corpus:
//
//   bazel run //tests/fuzz:make_corpus -- $PWD/tests/fuzz/corpus
//
// Keeps files in the folder that it did not write, such as inputs that a fuzzer found.
#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/fuzz/samples/sample_framed_rpc_scripts.h"
#include "tests/fuzz/samples/sample_inputs.h"
#include "tests/fuzz/tcpstore_check.h"

namespace {

bool WriteAll(const std::string& folder, const std::map<std::string, std::string>& inputs) {
  for (const auto& [name, bytes] : inputs) {
    const std::string path = absl::StrCat(folder, "/", name);
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) {
      std::fprintf(stderr, "cannot write %s\n", path.c_str());
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr,
                 "usage: make_corpus FOLDER (with folders decode, framed_rpc, request and tcpstore "
                 "in it)\n");
    return 2;
  }
  const std::string root = argv[1];
  const bool written =
      WriteAll(root + "/framed_rpc", cohort::coordinator::fuzz::SampleFramedRpcInputs()) &&
      WriteAll(root + "/decode", cohort::coordinator::fuzz::SampleDecodeInputs()) &&
      WriteAll(root + "/request", cohort::coordinator::fuzz::SampleRequestInputs()) &&
      WriteAll(root + "/tcpstore", cohort::coordinator::fuzz::SampleTcpStoreInputs());
  return written ? 0 : 1;
}
