// What the processes of one launch know and nobody else does. It is never sent, logged or quoted in an error:
// handshake.h proves that two sides know it.
//
// Where it comes from, in this order:
//   TANDEM_SECRET=HEX          what a launcher hands its ranks
//   TANDEM_SECRET_FILE=FILE    what a user gives every host
//   TANDEM_INSECURE=1          none: whoever comes is let in
// and where there is none of these, ranks on one host take their user's own (users_secret).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

inline constexpr const char* kSecretVariable = "TANDEM_SECRET";
inline constexpr const char* kSecretFileVariable = "TANDEM_SECRET_FILE";
inline constexpr const char* kInsecureVariable = "TANDEM_INSECURE";

class Secret {
 public:
  Secret() = default;      // none: the one that everybody knows
  static Secret random();  // 32 bytes of the kernel's
  // Both throw ConfigError: where it is no hex or shorter than 16 bytes; where the file cannot be read, is
  // empty or shorter than 16 bytes, or others than its owner may read it; root's with mode 0440 or less is
  // taken where its group is this process's own, as in a pod.
  static Secret from_hex(std::string_view hex, std::string_view where);
  static Secret from_file(const std::filesystem::path& path);

  bool is_none() const { return key_.empty(); }
  std::string_view key() const { return key_; }
  std::string to_hex() const;  // for a rank's environment and a launch's own store, nothing else

 private:
  explicit Secret(std::string key) : key_(std::move(key)) {}
  std::string key_;
};

std::optional<Secret> given_secret();  // by the variables; ConfigError

// Of this user on this host: a file that only they can read, made by whoever needs it first, in
// /run/user/UID/tandem or else /tmp/tandem-UID. ConfigError where somebody else has made that.
Secret users_secret();
Secret secret_kept_in(const std::filesystem::path& directory);

}  // namespace tandem
