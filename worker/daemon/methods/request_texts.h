// Bounds the texts of requests. A request lives as long as its call, which may be as long as a
// session, and its texts come back in errors, logs and tables.
//
//   COHORT_RETURN_IF_ERROR(CheckTexts(request));
#ifndef COHORT_WORKER_DAEMON_METHODS_REQUEST_TEXTS_H_
#define COHORT_WORKER_DAEMON_METHODS_REQUEST_TEXTS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace cohort::worker {

// The most bytes of a text, or of an id.
constexpr size_t kMaxTextBytes = 4096;
// The most bytes of a name, as at the coordinator.
constexpr size_t kMaxNameBytes = 128;
// The most texts of one repeated field.
constexpr int kMaxTexts = 4096;

// The texts of one type of request, found by its descriptor. Fields without texts cost nothing.
// Thread-safe.
class RequestTexts {
 public:
  // `type` lives for ever, and no message of it contains another one of the same type.
  explicit RequestTexts(const google::protobuf::Descriptor& type);
  // Errors: INVALID_ARGUMENT (a text is too long; names the field, the size and the limit).
  absl::Status Check(const google::protobuf::Message& request) const;

 private:
  struct Text {
    const google::protobuf::FieldDescriptor* field;
    size_t most;
  };
  struct Part {
    const google::protobuf::FieldDescriptor* field;
    std::unique_ptr<const RequestTexts> texts;
  };

  std::vector<Text> texts_;
  std::vector<Part> parts_;
};

// Checks every text of `request`: of fields of type `string`, and of type `bytes` except those that
// carry the elements of a tensor or an object. Errors: those of RequestTexts::Check.
template <typename Request>
absl::Status CheckTexts(const Request& request) {
  static const RequestTexts* const texts = new RequestTexts(*Request::descriptor());
  return texts->Check(request);
}

// Returns the begin of a client's text for an error or a line of the log, printable.
std::string Excerpt(absl::string_view text);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_METHODS_REQUEST_TEXTS_H_
