#include "tandem/base/task_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace tandem {
namespace {

TEST(TaskStream, RunsTasksInOrderAndWaitsForTheRightOne) {
  std::vector<int> order;
  std::atomic<int> seen{0};
  TaskStream stream;
  TaskStream::Ticket third = 0;
  for (int i = 0; i < 5; ++i) {
    const auto ticket = stream.submit([&, i] {
      order.push_back(i);
      seen = i + 1;
    });
    if (i == 2) third = ticket;
  }
  stream.wait(third);
  EXPECT_GE(seen, 3);
  stream.wait_all();
  EXPECT_EQ((std::vector<int>{0, 1, 2, 3, 4}), order);
}

TEST(TaskStream, AFailureReachesItsTicketAndAllAfterIt) {
  bool ran_after = false;
  {
    TaskStream stream;
    const auto good = stream.submit([] {});
    const auto bad = stream.submit([] { throw std::runtime_error("lost"); });
    const auto after = stream.submit([&] { ran_after = true; });
    stream.wait(good);
    EXPECT_THROW(stream.wait(bad), std::runtime_error);
    EXPECT_THROW(stream.wait(after), std::runtime_error);
    EXPECT_NO_THROW(stream.wait(good));
  }
  EXPECT_FALSE(ran_after);
}

}  // namespace
}  // namespace tandem
