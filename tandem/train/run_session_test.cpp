#include "tandem/train/run_session.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tandem/base/error.h"
#include "tandem/kernels/cpu/backend.h"
#include "tandem/train/device_threads.h"
#include "tandem/train/tiny_config_test.h"

namespace tandem {
namespace {

TEST(RunSession, RanksAgreeOnAnInterruptionThatOneOfThemHasHeardOf) {
  const Config config = tiny_config("parallel: {strategy: dp, data: 2}\ntrain: {batch: 4, micro_batch: 2}");
  const Backend backend = cpu::make_backend();
  for (const bool told : {false, true}) {
    std::atomic<int> interrupted = 0;
    run_device_threads(config, [&](const World& world) {
      const auto stop = [&] {
        if (told && !world.leads()) throw Interruption("interrupted");
      };
      try {
        const RunSession run(config, backend, build_model, world, stop);
      } catch (const Interruption&) {
        ++interrupted;
      }
      return ExitCode::Done;
    });
    EXPECT_EQ(interrupted, told ? 2 : 0);
  }
}

}  // namespace
}  // namespace tandem
