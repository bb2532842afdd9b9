#include "tests/fuzz/access/token_check.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/framed_rpc/frame.h"
#include "base/rpc/token_file.h"
#include "base/unique_fd.h"
#include "cohort/v1/store.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "tests/fuzz/access/frame_client.h"
#include "tests/fuzz/access/guarded_coordinator.h"

namespace cohort::coordinator::fuzz {
namespace {

constexpr char kPut[] = "cohort.v1.StoreService/Put";
constexpr char kUnknownToken[] = "a client with an unknown token";
constexpr size_t kMostTokens = 3;

absl::Status Violation(absl::string_view what) {
  return absl::InternalError(absl::CHexEscape(what));
}

v1::PutRequest Put() {
  v1::PutRequest put;
  put.mutable_scope()->set_tenant("a");
  put.set_key("key");
  return put;
}

std::string Denial(const std::string& identity) {
  return absl::StrCat("Put needs the role member in a tenant, and ", identity,
                      " has no role there");
}

// `identity`: of the client that is refused; empty: it is not.
absl::Status CheckAnswer(bool accepted, absl::string_view text, const std::string& identity,
                         TokenCounts& counts) {
  ++(accepted ? counts.accepted : counts.refused);
  if (accepted != identity.empty()) {
    return Violation(absl::StrCat("a token was ", accepted ? "accepted" : "refused: ", text));
  }
  // The whole text: it has no place for the token.
  if (!accepted && text != Denial(identity)) {
    return Violation(absl::StrCat("the error is: ", text));
  }
  return absl::OkStatus();
}

// A client of gRPC sends no other bytes.
bool IsHeaderValue(absl::string_view value) {
  return std::all_of(value.begin(), value.end(),
                     [](char byte) { return byte >= ' ' && byte <= '~'; });
}

absl::Status CheckMetadata(absl::string_view value, TokenCounts& counts) {
  // gRPC drops white space at the ends of a value.
  value = absl::StripAsciiWhitespace(value);
  if (!IsHeaderValue(value) || value.size() > 4096) return absl::OkStatus();
  static const auto* const channel = new std::shared_ptr<grpc::Channel>(grpc::CreateChannel(
      "unix:" + GuardedCoordinator::Shared(true).path(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoSeconds(kTimeout));
  context.AddMetadata("authorization", std::string(value));
  v1::PutResponse response;
  const grpc::Status status = v1::StoreService::NewStub(*channel)->Put(&context, Put(), &response);
  if (!status.ok() && status.error_code() != grpc::StatusCode::PERMISSION_DENIED) {
    return Violation(absl::StrCat(status.error_code(), ": ", status.error_message()));
  }
  constexpr absl::string_view kScheme = "bearer ";
  std::string identity = absl::StrCat("uid:", geteuid());
  if (absl::StartsWithIgnoreCase(value, kScheme)) {
    identity = value.substr(kScheme.size()) == kGoodToken ? "" : kUnknownToken;
  }
  return CheckAnswer(status.ok(), status.error_message(), identity, counts);
}

absl::Status CheckFrames(absl::string_view bytes, TokenCounts& counts) {
  std::vector<std::string> tokens;
  while (bytes.size() >= 2 && tokens.size() < kMostTokens) {
    const size_t size = static_cast<uint8_t>(bytes[0]) | size_t{static_cast<uint8_t>(bytes[1])}
                                                             << 8;
    tokens.emplace_back(bytes.substr(2, size));
    bytes.remove_prefix(std::min(size + 2, bytes.size()));
  }
  FrameClient client(UniqueFd(ConnectTo(GuardedCoordinator::Shared(true).path())));
  client.Greet();
  for (const std::string& token : tokens) client.Send(framed_rpc::Kind::kToken, 0, token);
  client.Send(framed_rpc::Kind::kCall, client.NumberOf(kPut), Put().SerializeAsString());
  const std::optional<FrameClient::Reply> reply = client.Next();
  const bool too_long = std::any_of(tokens.begin(), tokens.end(), [](const std::string& token) {
    return token.size() > kMaxTokenBytes;
  });
  if (too_long) {
    ++counts.refused;
    return reply.has_value() ? Violation("the server went on behind a wrong token frame")
                             : absl::OkStatus();
  }
  if (!reply.has_value()) return Violation("the server closed without cause");
  std::string identity = tokens.empty() ? absl::StrCat("uid:", geteuid()) : kUnknownToken;
  // The last token counts.
  if (!tokens.empty() && tokens.back() == kGoodToken) identity.clear();
  return CheckAnswer(reply->code == 0, reply->text, identity, counts);
}

absl::Status CheckFile(absl::string_view bytes, TokenCounts& counts) {
  static const auto* const path = [] {
    char folder[] = "/tmp/cohort-token-XXXXXX";
    if (mkdtemp(folder) == nullptr) std::abort();
    return new std::string(absl::StrCat(folder, "/token"));
  }();
  std::ofstream(*path, std::ios::binary | std::ios::trunc) << bytes;
  const absl::StatusOr<std::shared_ptr<TokenFile>> file = TokenFile::Load(*path);
  const absl::string_view token = absl::StripTrailingAsciiWhitespace(bytes);
  const auto wrong = std::find_if(token.begin(), token.end(), [](char byte) {
    return !absl::ascii_isalnum(static_cast<unsigned char>(byte)) &&
           !absl::StrContains("-._~+/=", byte);
  });
  const bool is_token = !token.empty() && token.size() <= kMaxTokenBytes && wrong == token.end();
  ++(file.ok() ? counts.accepted : counts.refused);
  if (file.ok() != is_token) return Violation("a token file was taken, or refused, wrongly");
  if (file.ok()) {
    return (*file)->Current(Instant()) == token ? absl::OkStatus()
                                                : Violation("a client has another token");
  }
  std::string why = "is empty";
  if (token.size() > kMaxTokenBytes) {
    why = absl::StrCat("has a token of ", token.size(), " bytes, at most 4096");
  } else if (!token.empty()) {
    why = absl::StrCat("byte ", wrong - token.begin(),
                       " of the token is no letter, no digit and none of -._~+/=");
  }
  return file.status() == absl::InvalidArgumentError(absl::StrCat("token file ", *path, ": ", why))
             ? absl::OkStatus()
             : Violation(file.status().ToString());
}

}  // namespace

absl::Status CheckToken(absl::string_view input, TokenCounts* counts) {
  TokenCounts ignored;
  TokenCounts& counted = counts == nullptr ? ignored : *counts;
  if (input.empty()) return absl::OkStatus();
  switch (static_cast<uint8_t>(input[0]) % 3) {
    case 0:
      return CheckMetadata(input.substr(1), counted);
    case 1:
      return CheckFrames(input.substr(1), counted);
    default:
      return CheckFile(input.substr(1), counted);
  }
}

std::map<std::string, std::string> SampleTokens() {
  const auto in_frames = [](const std::vector<std::string>& tokens) {
    std::string bytes(1, '\1');
    for (const std::string& token : tokens) {
      bytes += static_cast<char>(token.size() & 0xff);
      bytes += static_cast<char>(token.size() >> 8);
      bytes += token;
    }
    return bytes;
  };
  const std::string metadata(1, '\0');
  const std::string file(1, '\2');
  const std::string good = kGoodToken;
  return {
      {"metadata_good", metadata + "Bearer " + good},
      {"metadata_upper_case", metadata + "BEARER " + good},
      {"metadata_other_scheme", metadata + "Basic " + good},
      {"metadata_two_spaces", metadata + "Bearer  " + good},
      {"metadata_empty", metadata + "Bearer "},
      {"metadata_longer", metadata + "Bearer " + good + "x"},
      {"metadata_two", metadata + "Bearer " + good + ", Bearer " + good},
      {"frames_none", in_frames({})},
      {"frames_good", in_frames({good})},
      {"frames_prefix", in_frames({good.substr(1)})},
      {"frames_zero_byte", in_frames({good + std::string(1, '\0')})},
      {"frames_twice", in_frames({good, good})},
      {"frames_longest", in_frames({std::string(4096, 'x')})},
      {"frames_too_long", in_frames({std::string(4097, 'x')})},
      {"file_good", file + good + "\r\n"},
      {"file_empty", file + " \n"},
      {"file_two_lines", file + good + "\n" + good},
      {"file_space_first", file + " " + good},
      {"file_zero_byte", file + good + std::string(1, '\0')},
      {"file_too_long", file + std::string(4097, 'x')},
  };
}

}  // namespace cohort::coordinator::fuzz
