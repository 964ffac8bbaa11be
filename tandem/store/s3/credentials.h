// Who asks: the keys that requests are signed with. They come from the first of these that has some, as with
// other programs for S3:
//   1. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN;
//   2. AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN: a pod's identity, for which STS lends keys;
//   3. the profile AWS_PROFILE (or "default") of ~/.aws/credentials and ~/.aws/config;
//   4. AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI: a container's role;
//   5. the role of the machine (IMDSv2), unless AWS_EC2_METADATA_DISABLED is true.
// Keys that are lent are fetched anew some minutes before they end. None of this is ever printed, logged or
// put into a message.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tandem/store/s3/http.h"
#include "tandem/store/s3/ini_file.h"
#include "tandem/store/s3/sign.h"

namespace tandem::s3 {

// Where settings come from; a test gives its own.
struct Environment {
  std::function<std::string(const std::string& name)> variable;  // empty where it is not set
  std::function<std::optional<std::string>(const std::string& path)> file;
  std::function<int64_t()> now;  // seconds since 1970
};
Environment this_environment();

std::string home_file(const Environment& environment, const std::string& variable,
                      const std::string& below_home);

// The keys of a profile of ~/.aws/config and ~/.aws/credentials, the latter's first.
std::map<std::string, std::string> read_profile(const Environment& environment);

struct LentKeys {
  KeyPair keys;
  int64_t ends = 0;    // seconds since 1970; 0: never
  std::string source;  // "the profile default": for messages
};

class Credentials {
 public:
  Credentials(Environment environment, std::string region);

  // Good for some time to come. Throws IoError where none can be had: what was tried and what to set.
  KeyPair keys();
  // A server has refused `refused` as too old: the next call fetches them anew. False where that is no use,
  // because they are not lent, or others have been fetched since.
  bool renew(const KeyPair& refused);

 private:
  LentKeys fetch();
  std::optional<LentKeys> from_variables() const;
  std::optional<LentKeys> from_web_identity() const;
  std::optional<LentKeys> from_profile() const;
  std::optional<LentKeys> from_container() const;
  std::optional<LentKeys> from_machine() const;

  Environment environment_;
  std::string region_;
  Http http_;
  std::mutex mutex_;
  std::optional<LentKeys> lent_;
};

// Of the answer of a container's or a machine's role. Throws DataError.
LentKeys parse_role_keys(const std::string& body, const std::string& source);
// Of STS's answer to AssumeRoleWithWebIdentity.
LentKeys parse_web_identity(const std::string& body);

}  // namespace tandem::s3
