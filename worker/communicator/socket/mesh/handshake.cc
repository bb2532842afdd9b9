#include "worker/communicator/socket/mesh/handshake.h"

namespace cohort::worker {

Hello MakeHello(const Membership& self, int peer, int stream) {
  Hello hello;
  hello.size = static_cast<uint32_t>(self.size);
  hello.secret = self.secret.high;
  hello.from = static_cast<uint32_t>(self.rank);
  hello.to = static_cast<uint32_t>(peer);
  hello.stream = static_cast<uint32_t>(stream);
  hello.streams = static_cast<uint32_t>(self.streams);
  return hello;
}

Answer Judge(const Hello& hello, const Membership& self) {
  if (hello.magic != kHandshakeMagic) return Answer::kOtherMagic;
  if (hello.version != kHandshakeVersion) return Answer::kOtherVersion;
  if (hello.secret != self.secret.high) return Answer::kOtherSecret;
  const bool fits = hello.size == static_cast<uint32_t>(self.size) &&
                    hello.streams == static_cast<uint32_t>(self.streams) &&
                    hello.to == static_cast<uint32_t>(self.rank) && hello.from > hello.to &&
                    hello.from < hello.size && hello.stream < hello.streams;
  return fits ? Answer::kWelcome : Answer::kOtherShape;
}

Welcome MakeWelcome(const Membership& self, Answer answer) {
  Welcome welcome;
  welcome.answer = answer;
  if (answer == Answer::kWelcome) welcome.secret = self.secret.low;
  return welcome;
}

absl::string_view RejectionOf(const Welcome& welcome, const Membership& self) {
  if (welcome.magic != kHandshakeMagic) return "the server there is no rank of a group";
  if (welcome.version != kHandshakeVersion) return Describe(Answer::kOtherVersion);
  if (welcome.answer != Answer::kWelcome) return Describe(welcome.answer);
  if (welcome.secret != self.secret.low) return Describe(Answer::kOtherSecret);
  return "";
}

absl::string_view Describe(Answer answer) {
  switch (answer) {
    case Answer::kWelcome:
      return "welcome";
    case Answer::kOtherMagic:
      return "not a rank";
    case Answer::kOtherVersion:
      return "another version of the protocol";
    case Answer::kOtherSecret:
      return "another group or generation";
    case Answer::kOtherShape:
      return "another size, rank or number of streams";
    case Answer::kDuplicate:
      return "that rank is there already";
  }
  return "refused";
}

}  // namespace cohort::worker
