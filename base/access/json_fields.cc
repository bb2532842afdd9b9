#include "base/access/json_fields.h"

#include <algorithm>
#include <cstddef>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace cohort {
namespace {

using nlohmann::json;

// Ends the parse at the first fault, before the library builds values.
class FaultFinder final : public nlohmann::json_sax<json> {
 public:
  const std::string& fault() const { return fault_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return false; }  // JSON text has none
  bool start_object(size_t) override { return Enter(); }
  bool start_array(size_t) override { return Enter(); }
  bool end_object() override { return Leave(); }
  bool end_array() override { return Leave(); }
  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    fault_ = "has a key twice";
    return false;
  }
  bool parse_error(size_t, const std::string&, const json::exception&) override { return false; }

 private:
  bool Enter() {
    keys_.emplace_back();
    if (keys_.size() <= kMaxJsonDepth) return true;
    fault_ = absl::StrCat("has more than ", kMaxJsonDepth, " levels");
    return false;
  }
  bool Leave() {
    keys_.pop_back();
    return true;
  }

  std::string fault_ = "is not JSON";
  std::vector<absl::flat_hash_set<std::string>> keys_;  // of the open objects and lists
};

}  // namespace

absl::StatusOr<json> ParseStrictJson(absl::string_view text) {
  FaultFinder finder;
  if (!json::sax_parse(text.begin(), text.end(), &finder)) {
    return absl::InvalidArgumentError(finder.fault());
  }
  json parsed = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return absl::InvalidArgumentError("is not an object");
  return parsed;
}

std::string TextField(const json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || !found->is_string() ? "" : found->get<std::string>();
}

absl::Status CheckFields(const json& object, const std::vector<absl::string_view>& names) {
  if (!object.is_object()) return absl::InvalidArgumentError("is not an object");
  for (const auto& [name, value] : object.items()) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      return absl::InvalidArgumentError(absl::StrCat("has no field ", name));
    }
  }
  return absl::OkStatus();
}

}  // namespace cohort
