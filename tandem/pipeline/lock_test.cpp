#include "tandem/pipeline/lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <optional>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/system.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem::pipeline {
namespace {

// Somebody holds the lock, and has written who that is.
class HeldStore : public testing::Test {
 protected:
  void hold(const std::string& who) {
    file_.emplace(::open(store_.write("lock", who).c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(::flock(file_->get(), LOCK_EX | LOCK_NB), 0);
  }
  std::string refusal() {
    return message_of<IoError>([&] { StoreLock lock(store_.path()); });
  }
  const TemporaryDirectory store_;
  std::optional<Descriptor> file_;
};

constexpr const char* kNobody = "999999999";  // no process of this machine

TEST_F(HeldStore, AProcessOfAnotherMachineIsNotLookedForHere) {
  hold(std::string(kNobody) + " another-start/pid:[1] node-b\n");
  EXPECT_EQ(refusal(),
            store_.path().string() + ": process 999999999 on node-b works in it; wait for it, or end it");
  EXPECT_EQ(runner_of(store_.path()), 999999999);
}

TEST_F(HeldStore, AProcessOfThisOneIs) {
  for (const std::string& where : {std::string(), " " + process_space() + " " + hostname()}) {
    hold(std::to_string(::getpid()) + where + "\n");
    EXPECT_NE(refusal().find("process " + std::to_string(::getpid()) + " works in it"), std::string::npos);
    EXPECT_EQ(runner_of(store_.path()), ::getpid());
  }
  hold(std::string(kNobody) + " " + process_space() + " " + hostname() + "\n");
  EXPECT_EQ(runner_of(store_.path()), 0);
}

}  // namespace
}  // namespace tandem::pipeline
