#include "tandem/train/trainer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tandem/base/file.h"
#include "tandem/base/system.h"
#include "tandem/checkpoint/manifest.h"
#include "tandem/config/load.h"
#include "tandem/kernels/cpu/backend.h"

namespace tandem {
namespace {

TEST(Trainer, NamesTheDeviceOfItsRankInTheManifestAndTheSummary) {
  const std::filesystem::path run =
      std::filesystem::path(testing::TempDir()) / fmt::format("tandem-trainer-{}", ::getpid());
  const Config config = parse_config(
                            "threads: 1\ntrain: {steps: 2, batch: 2, micro_batch: 2, eval_every: 0}\n"
                            "model: {layers: 1, width: 16, heads: 2, context: 16, vocab: 256}\n",
                            "config")
                            .config;
  Backend backend = cpu::make_backend();
  for (const bool named : {true, false}) {
    if (!named) backend.name_device = {};
    if (named) backend.name_device = [](const Communicators*) { return "Abacus (GPU 3, GPU-0a)"; };
    EXPECT_EQ(train(config, backend, {.run_dir = run, .resume = {}}), ExitCode::Done);
    const std::string expected = (named ? "Abacus (GPU 3, GPU-0a), " : "") + hardware_description();
    EXPECT_EQ(read_manifest(run / "checkpoints/latest").hardware, expected);
    EXPECT_EQ(nlohmann::json::parse(read_text(run / "summary.json"))["hardware"], expected);
    std::filesystem::remove_all(run);
  }
}

}  // namespace
}  // namespace tandem
