// Arbitrary bytes of an HTTP/2 client and server, which pass the guard in pieces of two sizes.
#ifndef COHORT_TESTS_FUZZ_ACCESS_HTTP2_GUARD_CHECK_H_
#define COHORT_TESTS_FUZZ_ACCESS_HTTP2_GUARD_CHECK_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::fuzz {

struct Http2Counts {
  int64_t refused = 0;  // connections
  int64_t requests = 0;
  int64_t streams = 0;  // open at the end
};

// `input`: pieces behind the client's preface. Each is one byte (0x80: of the server; 0x40: a
// second later; the rest: length) and so many bytes.
//
// Errors: INTERNAL names the violated rule. One guard gets each piece whole, and the other byte by
// byte: both find the same frames, and the second, whose pieces cost more, refuses what the first
// refuses. The counts stay within the limits, and nothing is left after the streams were reset.
absl::Status CheckHttp2Guard(absl::string_view input, Http2Counts* counts = nullptr);

// File name to input.
std::map<std::string, std::string> SampleHttp2();

}  // namespace cohort::fuzz

#endif  // COHORT_TESTS_FUZZ_ACCESS_HTTP2_GUARD_CHECK_H_
