#include "tandem/comm/secret.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/sha256.h"

namespace tandem {
namespace {

constexpr size_t kLeastBytes = 16;
constexpr size_t kMostFileBytes = 4096;

struct OpenFile {
  int fd = -1;
  ~OpenFile() {
    if (fd >= 0) ::close(fd);
  }
};

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

bool is_own_and_private(const struct stat& status) {
  return status.st_uid == geteuid() && (status.st_mode & 077) == 0;
}

// Whether nobody else than this user gets at a file. One that root has made for this process's own group to
// read, and nobody to write, is as good: a Secret mounted into a pod comes so, with the pod's group
// (fsGroup). A file of the user's own has to be private, which they can make it.
bool is_for_us_alone(const struct stat& status) {
  if ((status.st_mode & 077) == 0) return true;
  return status.st_uid == 0 && geteuid() != 0 && status.st_gid == getegid() && (status.st_mode & 037) == 0;
}

// Whole, under its name, or not at all: whoever comes second reads the first one's.
void write_first(const std::filesystem::path& path, const std::string& text) {
  const std::string aside = fmt::format("{}.{}", path.string(), getpid());
  ::unlink(aside.c_str());
  const OpenFile file{::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
  const bool written =
      file.fd >= 0 && ::write(file.fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const bool placed = written && (::link(aside.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const int error = errno;
  ::unlink(aside.c_str());
  if (!placed) throw IoError("{}: cannot be written: {}", path.string(), std::strerror(error));
}

}  // namespace

Secret Secret::random() {
  std::array<char, 32> bytes;
  // So few bytes come whole or not at all.
  while (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    if (errno != EINTR) throw IoError("random numbers: the kernel gives none: {}", std::strerror(errno));
  }
  return Secret(std::string(bytes.data(), bytes.size()));
}

Secret Secret::from_hex(std::string_view hex, std::string_view where) {
  std::string key;
  for (size_t at = 0; at + 2 <= hex.size(); at += 2) {
    unsigned char byte = 0;
    const auto [end, error] = std::from_chars(hex.data() + at, hex.data() + at + 2, byte, 16);
    if (error != std::errc() || end != hex.data() + at + 2) break;
    key += static_cast<char>(byte);
  }
  if (key.size() * 2 != hex.size() || key.size() < kLeastBytes) {
    throw ConfigError(
        "{}: expected {} hex digits or more, found something else; leave it unset, or give a secret in a "
        "file ({})",
        where, 2 * kLeastBytes, kSecretFileVariable);
  }
  return Secret(std::string(key.data(), key.size()));
}

Secret Secret::from_file(const std::filesystem::path& path) {
  const std::string name = fmt::format("secret file {}", path.string());
  const OpenFile file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  struct stat status {};
  if (file.fd < 0 || fstat(file.fd, &status) != 0)
    throw ConfigError("{}: cannot be read: {}", name, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) throw ConfigError("{}: expected a file, found something else", name);
  if (!is_for_us_alone(status)) {
    throw ConfigError("{}: others than its owner may use it (mode {:o}); make it private: chmod 600 {}", name,
                      status.st_mode & 07777, path.string());
  }
  std::array<char, kMostFileBytes + 1> buffer;
  const ssize_t count = ::read(file.fd, buffer.data(), buffer.size());
  if (count < 0) throw ConfigError("{}: cannot be read: {}", name, std::strerror(errno));
  std::string_view text(buffer.data(), static_cast<size_t>(count));
  if (text.size() > kMostFileBytes)
    throw ConfigError("{}: expected at most {} bytes; is it another file?", name, kMostFileBytes);
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  if (text.size() < kLeastBytes) {
    throw ConfigError(
        "{}: expected {} characters or more that nobody can guess, found {}; make one: head -c 32 "
        "/dev/urandom | base64 > {}",
        name, kLeastBytes, text.size(), path.string());
  }
  return Secret(std::string(as_text(sha256(text))));
}

std::string Secret::to_hex() const {
  std::string hex;
  for (const char c : key_) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return hex;
}

std::optional<Secret> given_secret() {
  if (const auto hex = variable(kSecretVariable))
    return Secret::from_hex(*hex, fmt::format("environment variable {}", kSecretVariable));
  if (const auto path = variable(kSecretFileVariable)) return Secret::from_file(*path);
  const auto insecure = variable(kInsecureVariable);
  if (!insecure || *insecure == "0") return std::nullopt;
  if (*insecure == "1") return Secret();
  throw ConfigError("environment variable {}: expected 0 or 1, found '{}'", kInsecureVariable, *insecure);
}

Secret secret_kept_in(const std::filesystem::path& directory) {
  struct stat status {};
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    throw IoError(
        "{}: cannot be made, for the secret of ranks without a launcher: {}; give them one in a file ({})",
        directory.string(), std::strerror(errno), kSecretFileVariable);
  if (lstat(directory.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || !is_own_and_private(status)) {
    throw ConfigError(
        "{}: expected a directory that only this user can use, for the secret of ranks without a launcher, "
        "found something else; remove it, or give them a secret in a file ({})",
        directory.string(), kSecretFileVariable);
  }
  const std::filesystem::path path = directory / "secret";
  if (!std::filesystem::exists(path)) write_first(path, Secret::random().to_hex());
  return Secret::from_file(path);
}

Secret users_secret() {
  const std::filesystem::path runtime = fmt::format("/run/user/{}", geteuid());
  struct stat status {};
  const bool has_runtime =
      lstat(runtime.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && is_own_and_private(status);
  return secret_kept_in(has_runtime ? runtime / "tandem"
                                    : std::filesystem::path(fmt::format("/tmp/tandem-{}", geteuid())));
}

}  // namespace tandem
