#include "tandem/comm/secret.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>

#include "tandem/base/error.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

class SecretTest : public testing::Test {
 protected:
  ~SecretTest() override {
    for (const char* name : {kSecretVariable, kSecretFileVariable, kInsecureVariable}) unsetenv(name);
  }
  fs::path write(const std::string& text, mode_t mode = 0600) {
    const fs::path path = directory_ / "given";
    fs::remove(path);
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  const TemporaryDirectory temporary_;
  const fs::path& directory_ = temporary_.path();
};

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing refused";
}

constexpr const char* kText = "correct horse battery staple";

TEST_F(SecretTest, ComesFromAFile) {
  const Secret secret = Secret::from_file(write(kText));
  EXPECT_EQ(secret.key().size(), 32u);
  EXPECT_EQ(Secret::from_file(write(std::string(kText) + "\n")).key(), secret.key());
  EXPECT_NE(Secret::from_file(write(std::string(kText) + "!")).key(), secret.key());
  EXPECT_EQ(Secret::from_hex(secret.to_hex(), "here").key(), secret.key());
}

TEST_F(SecretTest, IsRefusedFromAFileThatOthersMayUse) {
  for (const mode_t mode : {0640u, 0604u, 0620u, 0666u}) {
    const std::string path = write(kText, mode).string();
    EXPECT_EQ(refusal([&] { Secret::from_file(path); }),
              fmt::format("secret file {0}: others than its owner may use it (mode {1:o}); make it private: "
                          "chmod 600 {0}",
                          path, mode));
  }
}

// What a user without rights says to a file of root's, who is another process: ids of a thread stay with it.
std::string said_by(uid_t user, gid_t group, const fs::path& path) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    std::string said = "taken";
    if (setgroups(0, nullptr) != 0 || setresgid(group, group, group) != 0 || setresuid(user, user, user) != 0)
      said = "no such user";
    try {
      Secret::from_file(path);
    } catch (const ConfigError& error) {
      said = error.what();
    }
    [[maybe_unused]] const ssize_t written = ::write(ends[1], said.data(), said.size());
    _exit(0);
  }
  close(ends[1]);
  std::string said(4096, '\0');
  said.resize(static_cast<size_t>(std::max<ssize_t>(0, ::read(ends[0], said.data(), said.size()))));
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return said;
}

TEST_F(SecretTest, OfAPodIsRootsForItsGroup) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make files of others";
  constexpr uid_t kPod = 65532;
  chmod(directory_.c_str(), 0755);
  const fs::path path = write(kText, 0440);
  ASSERT_EQ(chown(path.c_str(), 0, kPod), 0);
  chmod(path.c_str(), 0440);
  EXPECT_EQ(said_by(kPod, kPod, path), "taken");
  // Of a group that is not the process's own; to be written; to be read by all; the user's own.
  EXPECT_NE(said_by(kPod, kPod + 1, path).find("cannot be read"), std::string::npos);
  for (const mode_t mode : {0460u, 0444u, 0450u}) {
    chmod(path.c_str(), mode);
    EXPECT_NE(said_by(kPod, kPod, path).find("others than its owner"), std::string::npos) << mode;
  }
  chmod(path.c_str(), 0440);
  EXPECT_NE(refusal([&] { Secret::from_file(path); }).find("others than its owner"), std::string::npos);
  ASSERT_EQ(chown(path.c_str(), kPod, kPod), 0);
  EXPECT_NE(said_by(kPod, kPod, path).find("others than its owner"), std::string::npos);
}

TEST_F(SecretTest, IsRefusedWhereItIsShortLongOrNoFile) {
  for (const char* text : {"", "\n", "short", "fifteen letters\n"}) {
    const std::string told = refusal([&] { Secret::from_file(write(text)); });
    EXPECT_NE(told.find("expected 16 characters or more"), std::string::npos) << told;
    if (*text > ' ') {
      EXPECT_EQ(told.find(text), std::string::npos) << told;
    }
  }
  EXPECT_NE(refusal([&] { Secret::from_file(write(std::string(5000, 'x'))); }).find("at most 4096 bytes"),
            std::string::npos);
  EXPECT_NE(refusal([&] { Secret::from_file(directory_); }).find("expected a file"), std::string::npos);
  EXPECT_NE(refusal([&] { Secret::from_file(directory_ / "none"); }).find("No such file"), std::string::npos);
  const fs::path fifo = directory_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_NE(refusal([&] { Secret::from_file(fifo); }).find("expected a file"), std::string::npos);
}

TEST_F(SecretTest, IsNeverQuotedFromTheEnvironment) {
  for (const char* text :
       {"abcd", "nohexnohexnohexnohexnohexnohexnohex", "0123456789abcdef0123456789abcdef0"}) {
    setenv(kSecretVariable, text, 1);
    const std::string told = refusal([] { given_secret(); });
    EXPECT_TRUE(told.starts_with("environment variable TANDEM_SECRET: expected 32 hex digits or more"))
        << told;
    EXPECT_EQ(told.find(text), std::string::npos);
  }
}

TEST_F(SecretTest, IsWhatTheFirstVariableSays) {
  EXPECT_FALSE(given_secret().has_value());
  setenv(kInsecureVariable, "0", 1);
  EXPECT_FALSE(given_secret().has_value());
  setenv(kInsecureVariable, "1", 1);
  EXPECT_TRUE(given_secret().value().is_none());
  setenv(kSecretFileVariable, write(kText).c_str(), 1);
  EXPECT_EQ(given_secret().value().key(), Secret::from_file(write(kText)).key());
  const Secret random = Secret::random();
  setenv(kSecretVariable, random.to_hex().c_str(), 1);
  EXPECT_EQ(given_secret().value().key(), random.key());
}

TEST_F(SecretTest, OfAUserIsMadeOnceAndKeptPrivate) {
  const fs::path place = directory_ / "kept";
  const Secret secret = secret_kept_in(place);
  EXPECT_EQ(secret_kept_in(place).key(), secret.key());
  EXPECT_NE(secret_kept_in(directory_ / "other").key(), secret.key());
  EXPECT_EQ(fs::status(place).permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(place / "secret").permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(std::distance(fs::directory_iterator(place), {}), 1);
}

TEST_F(SecretTest, OfAUserIsNotTakenFromAPlaceOfOthers) {
  const fs::path open = directory_ / "open", link = directory_ / "link", own = directory_ / "own";
  fs::create_directory(open);
  chmod(open.c_str(), 0777);
  fs::create_directory(own);
  chmod(own.c_str(), 0700);
  fs::create_directory_symlink(own, link);
  for (const fs::path& place : {open, link}) {
    const std::string told = refusal([&] { secret_kept_in(place); });
    EXPECT_TRUE(told.starts_with(place.string() + ": expected a directory that only this user can use"))
        << told;
  }
  if (geteuid() == 0) {
    ASSERT_EQ(chown(own.c_str(), 65534, 65534), 0);
    EXPECT_TRUE(refusal([&] { secret_kept_in(own); }).starts_with(own.string() + ": expected"));
  }
}

}  // namespace
}  // namespace tandem
