#include "worker/communicator/socket/mesh/handshake.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/rpc/random_bits.h"

namespace cohort::worker {
namespace {

// The proof of one end, for this connection alone.
Proof ProofFor(absl::string_view end, const Id128& secret, const Hello& hello,
               const Id128& challenge) {
  return ProofOfText(secret, absl::StrCat(end, " rank ", hello.from, " to rank ", hello.to,
                                          ", stream ", hello.stream, " of ", hello.streams, ": ",
                                          hello.challenge.ToString(), challenge.ToString()));
}

}  // namespace

Hello MakeHello(const Membership& self, int peer, int stream) {
  Hello hello;
  hello.size = static_cast<uint32_t>(self.size);
  hello.group = GroupMark(self.secret);
  hello.from = static_cast<uint32_t>(self.rank);
  hello.to = static_cast<uint32_t>(peer);
  hello.stream = static_cast<uint32_t>(stream);
  hello.streams = static_cast<uint32_t>(self.streams);
  hello.challenge = RandomBits();
  return hello;
}

Answer Judge(const Hello& hello, const Membership& self) {
  if (hello.magic != kHandshakeMagic) return Answer::kOtherMagic;
  if (hello.version != kHandshakeVersion) return Answer::kOtherVersion;
  if (hello.group != GroupMark(self.secret)) return Answer::kOtherGroup;
  const bool fits = hello.size == static_cast<uint32_t>(self.size) &&
                    hello.streams == static_cast<uint32_t>(self.streams) &&
                    hello.to == static_cast<uint32_t>(self.rank) && hello.from > hello.to &&
                    hello.from < hello.size && hello.stream < hello.streams;
  return fits ? Answer::kWelcome : Answer::kOtherShape;
}

Welcome MakeWelcome(const Membership& self, Answer answer, const Hello& hello) {
  Welcome welcome;
  welcome.answer = answer;
  if (answer != Answer::kWelcome) return welcome;
  welcome.challenge = RandomBits();
  welcome.proof = ProofFor("accepts", self.secret, hello, welcome.challenge);
  return welcome;
}

Proof ProofOf(const Membership& self, const Hello& hello, const Welcome& welcome) {
  return ProofFor("connects", self.secret, hello, welcome.challenge);
}

absl::string_view RejectionOf(const Welcome& welcome, const Membership& self, const Hello& hello) {
  if (welcome.magic != kHandshakeMagic) return "the server there is no rank of a group";
  if (welcome.version != kHandshakeVersion) return Describe(Answer::kOtherVersion);
  if (welcome.answer != Answer::kWelcome) return Describe(welcome.answer);
  if (!Equal(welcome.proof, ProofFor("accepts", self.secret, hello, welcome.challenge))) {
    return Describe(Answer::kOtherGroup);
  }
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
    case Answer::kOtherGroup:
      return "another group or generation";
    case Answer::kOtherShape:
      return "another size, rank or number of streams";
    case Answer::kDuplicate:
      return "that rank is there already";
  }
  return "refused";
}

}  // namespace cohort::worker
