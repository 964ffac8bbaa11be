// Values are written to a file of their own first, which then gets the key's name: by rename where the value
// may replace another, by link, which fails where the name is taken, where it may not. Only add needs a lock.
#include "tandem/comm/key_store/file_key_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/system.h"
#include "tandem/comm/key_store/poll_for_key.h"

namespace tandem {
namespace {

constexpr std::chrono::seconds kLockTimeout{20};  // whoever holds it does so for microseconds

struct OpenFile {
  int fd = -1;
  ~OpenFile() {
    if (fd >= 0) ::close(fd);  // which unlocks a locked one
  }
};

}  // namespace

// Whoever can write there can end a launch, and whoever can read there knows its secret.
FileKeyStore::FileKeyStore(std::filesystem::path directory) : directory_(std::move(directory)) {
  std::error_code error;
  std::filesystem::create_directories(directory_.parent_path(), error);
  struct stat status {};
  if (::mkdir(directory_.c_str(), 0700) != 0 && errno != EEXIST) fail("make the directory");
  if (::stat(directory_.c_str(), &status) != 0) fail("use the directory");
  if (!S_ISDIR(status.st_mode)) throw CommError("store {}: expected a directory", description());
  if (status.st_uid != geteuid() || (status.st_mode & 022) != 0) {
    throw CommError(
        "store {}: others may write there (owner {}, mode {:o}); expected a directory that is this user's "
        "alone: "
        "chmod 700 {}, or name one that is not there yet",
        description(), status.st_uid, status.st_mode & 07777, directory_.string());
  }
}

void FileKeyStore::fail(const std::string& action) const {
  throw CommError("store {}: cannot {}: {}", description(), action, std::strerror(errno));
}

// A key may hold any character; those that a file name may not, and those that would clash, are spelled out.
std::filesystem::path FileKeyStore::path_of(const std::string& key) const {
  std::string name = "k.";
  for (const char c : key) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
    name += plain ? std::string(1, c) : fmt::format("%{:02x}", static_cast<unsigned char>(c));
  }
  return directory_ / name;
}

std::filesystem::path FileKeyStore::write_aside(const std::string& value) {
  static std::atomic<uint64_t> count{0};
  const std::filesystem::path path = directory_ / fmt::format("new.{}.{}.{}", hostname(), getpid(), ++count);
  const OpenFile file{::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)};
  if (file.fd < 0) fail("write " + path.string());
  for (std::string_view rest = value; !rest.empty();) {
    const ssize_t count = ::write(file.fd, rest.data(), rest.size());
    if (count < 0 && errno != EINTR) fail("write " + path.string());
    if (count > 0) rest.remove_prefix(static_cast<size_t>(count));
  }
  return path;
}

void FileKeyStore::set(const std::string& key, const std::string& value) {
  const std::filesystem::path aside = write_aside(value);
  if (::rename(aside.c_str(), path_of(key).c_str()) != 0) fail("set key '" + key + "'");
}

std::optional<std::string> FileKeyStore::try_get(const std::string& key) {
  std::ifstream file(path_of(key), std::ios::binary);
  if (file) return std::string(std::istreambuf_iterator<char>(file), {});
  if (errno != ENOENT || !std::filesystem::exists(directory_)) fail("read key '" + key + "'");
  return std::nullopt;
}

std::string FileKeyStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  return poll_for_key(*this, key, timeout);
}

std::string FileKeyStore::set_if_missing(const std::string& key, const std::string& value) {
  const std::filesystem::path aside = write_aside(value);
  for (;;) {
    const bool is_new = ::link(aside.c_str(), path_of(key).c_str()) == 0;
    if (!is_new && errno != EEXIST) fail("set key '" + key + "'");
    const auto present = is_new ? value : try_get(key);
    if (!present) continue;  // removed meanwhile
    ::unlink(aside.c_str());
    return *present;
  }
}

int64_t FileKeyStore::add(const std::string& key, int64_t amount) {
  const OpenFile lock{::open((directory_ / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
  if (lock.fd < 0) fail("open its lock");
  const auto deadline = std::chrono::steady_clock::now() + kLockTimeout;
  while (flock(lock.fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return add_without_locks(key, amount);
    if (std::chrono::steady_clock::now() > deadline) fail("lock it");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return add_to_value(key, amount);
}

// A directory that only one can make is the lock. A killed holder, who needed it for a few milliseconds, has
// left it when it stays for kLockTimeout.
int64_t FileKeyStore::add_without_locks(const std::string& key, int64_t amount) {
  const std::filesystem::path lock = directory_ / "lock.held";
  auto deadline = std::chrono::steady_clock::now() + kLockTimeout;
  while (::mkdir(lock.c_str(), 0700) != 0) {
    if (errno != EEXIST) fail("lock it");
    if (std::chrono::steady_clock::now() > deadline) {
      ::rmdir(lock.c_str());
      deadline += kLockTimeout;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const struct Held {
    const std::filesystem::path& path;
    ~Held() { ::rmdir(path.c_str()); }
  } held{lock};
  return add_to_value(key, amount);
}

int64_t FileKeyStore::add_to_value(const std::string& key, int64_t amount) {
  const std::string text = try_get(key).value_or("0");
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw CommError("store {}: key '{}' holds no number: '{}'", description(), key, text);
  }
  set(key, std::to_string(value + amount));
  return value + amount;
}

void FileKeyStore::remove(const std::string& key) {
  if (::unlink(path_of(key).c_str()) != 0 && errno != ENOENT) fail("remove key '" + key + "'");
}

}  // namespace tandem
