#include "tandem/launch/launch_secret.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "tandem/base/error.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem {
namespace {

class LaunchSecret : public testing::Test {
 protected:
  LaunchSecret() { clear(); }
  ~LaunchSecret() override { clear(); }
  static void clear() {
    for (const char* name : {kSecretVariable, kSecretFileVariable, kInsecureVariable}) unsetenv(name);
  }
  std::unique_ptr<KeyStore> store() {
    return make_key_store("file://" + (directory_.path() / "meet").string(), false, std::chrono::seconds(5),
                          {});
  }
  std::string write(const std::string& text) {
    const std::filesystem::path path = directory_.path() / text.substr(0, 4);
    std::ofstream(path) << text;
    chmod(path.c_str(), 0600);
    return path.string();
  }
  TemporaryDirectory directory_;
  LaunchOptions options_;
};

TEST_F(LaunchSecret, OfOneNodeIsNewEachTimeUnlessGiven) {
  EXPECT_NE(secret_for_one_node(options_).key(), secret_for_one_node(options_).key());
  options_.insecure = true;
  EXPECT_FALSE(secret_for_one_node(options_).is_none());
  setenv(kSecretFileVariable, write("what the variable says").c_str(), 1);
  const Secret by_variable = secret_for_one_node(options_);
  EXPECT_EQ(by_variable.key(), secret_for_one_node(options_).key());
  options_.secret_file = write("else the flag says it");
  EXPECT_NE(by_variable.key(), secret_for_one_node(options_).key());
}

TEST_F(LaunchSecret, IsNeededAtAStoreOfTheNodesOwn) {
  EXPECT_THROW(secret_for_rendezvous(options_), ConfigError);
  options_.insecure = true;
  EXPECT_TRUE(secret_for_rendezvous(options_).is_none());
  options_.insecure = false;
  options_.secret_file = write("what all nodes know");
  EXPECT_EQ(secret_for_rendezvous(options_).key(), Secret::from_file(options_.secret_file).key());
}

TEST_F(LaunchSecret, IsAgreedOnThroughADirectory) {
  options_.backend = RendezvousBackend::File;
  EXPECT_NO_THROW(secret_for_rendezvous(options_));
  const Secret first = secret_for_nodes(options_, *store(), "job");
  EXPECT_FALSE(first.is_none());
  EXPECT_EQ(first.key(), secret_for_nodes(options_, *store(), "job").key());
  EXPECT_NE(first.key(), secret_for_nodes(options_, *store(), "other").key());
  options_.secret_file = write("what all nodes know");
  EXPECT_NE(first.key(), secret_for_nodes(options_, *store(), "job").key());
}

}  // namespace
}  // namespace tandem
