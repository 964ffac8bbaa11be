// A JSON object of somebody else, read key by key. What was never asked for is known in the end, so that no
// key is ignored in silence.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::hub {

// Every refusal is a ConfigError that starts with `origin` and names the key.
class JsonKeys {
 public:
  JsonKeys(const nlohmann::json& object, std::string origin) : object_(object), origin_(std::move(origin)) {}

  const std::string& origin() const { return origin_; }
  const nlohmann::json* find(std::string_view key);  // nullptr when absent; the key counts as read
  bool is_null(std::string_view key);                // there, and null

  // Where the key is absent, `otherwise`; null is refused.
  int64_t integer(std::string_view key, int64_t otherwise);
  double real(std::string_view key, double otherwise);
  bool flag(std::string_view key, bool otherwise);
  std::string text(std::string_view key, std::string_view otherwise);

  // Null means "none" to transformers, other than an absent key.
  std::optional<int64_t> integer_or_none(std::string_view key, std::optional<int64_t> otherwise);
  std::optional<double> real_or_none(std::string_view key, std::optional<double> otherwise);
  std::optional<std::vector<double>> reals(std::string_view key);
  std::optional<std::vector<std::string>> texts(std::string_view key);

  // Reads a key that may have this value only.
  void require(std::string_view key, const nlohmann::json& only, std::string_view why);
  void ignore(std::string_view key) { read_.emplace(key); }

  // The first key that was not read and says something.
  std::optional<std::string> first_unread() const;

  [[noreturn]] void refuse(std::string_view key, std::string_view why) const;

 private:
  [[noreturn]] void refuse_kind(std::string_view key, std::string_view expected) const;

  const nlohmann::json& object_;
  std::string origin_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace tandem::hub
