#include "tandem/config/validate_parallel.h"

#include <gtest/gtest.h>

#include "tandem/config/rejection_test.h"

namespace tandem {
namespace {

// The default model: gpt2 of 6 layers and 6 heads, ffn 1536, vocab 256, context 256; batch 32 in 8s.
TEST(ValidateParallel, AcceptsMeshesThatWork) {
  for (const char* yaml :
       {"parallel: {strategy: ddp}", "parallel: {strategy: fsdp, data: 4}",
        "parallel: {strategy: dp, data: 2}", "parallel: {tensor: 2}", "parallel: {pipeline: 6}",
        "parallel: {tensor: 2, pipeline: 3}",
        "parallel: {strategy: zero1, data: 2, tensor: 2, pipeline: 2, schedule: gpipe}",
        "parallel: {pipeline: 2, schedule: interleaved, chunks: 3}",
        "parallel: {strategy: fsdp, data: 2, pipeline: 2}\nmemory: {offload: [params, optimizer]}",
        "memory: {offload: [optimizer]}",
        "parallel: {strategy: zero2, data: 2}\nmemory: {offload: [optimizer]}",
        "model: {family: resnet, norm: sync}\nparallel: {strategy: ddp, data: 2, pipeline: 6}",
        "model: {family: mlp, layers: 3}\nparallel: {pipeline: 3}",
        "precision: fp16\nparallel: {strategy: fsdp, data: 2, tensor: 2}"}) {
    EXPECT_EQ(rejection(yaml), "") << yaml;
  }
}

TEST(ValidateParallel, OffloadsOptimizersThatCanBe) {
  for (const char* name : {"lamb", "lars", "adafactor", "schedule_free_adamw"}) {
    EXPECT_EQ(
        rejection(fmt::format("train: {{optimizer: {}}}\nmemory: {{offload: [optimizer]}}", name)),
        fmt::format("run.yaml:2: memory.offload: {} cannot be offloaded; choose another train.optimizer, or "
                    "remove memory.offload",
                    name));
  }
}

TEST(ValidateParallel, LeavesScheduleAndChunksAloneWithoutAPipeline) {
  EXPECT_EQ(rejection("parallel: {schedule: interleaved}"), "");
  EXPECT_EQ(rejection("parallel: {schedule: gpipe, chunks: 9}"), "");
}

TEST(ValidateParallel, WantsAStrategyForTheDataAxis) {
  EXPECT_EQ(
      rejection("name: a\nparallel: {data: 2}"),
      "run.yaml:2: parallel.strategy single keeps one replica and needs parallel.data = 1, found 2; use "
      "parallel.strategy = ddp");
}

TEST(ValidateParallel, GivesDpTheDataAxisOnly) {
  EXPECT_EQ(rejection("parallel: {strategy: dp, data: 2, tensor: 2}"),
            "run.yaml:1: parallel.strategy dp is one process with the data axis only and needs "
            "parallel.tensor = 1, found 2; use parallel.strategy = ddp");
  EXPECT_EQ(rejection("parallel: {strategy: dp}", {{"parallel.pipeline=3"}}),
            "--set parallel.pipeline: parallel.strategy dp is one process with the data axis only and needs "
            "parallel.pipeline = 1, found 3; use parallel.strategy = ddp");
}

TEST(ValidateParallel, NamesAStrategyThatWorksWithAllTheRest) {
  const std::string yaml =
      "parallel: {strategy: dp, data: 2, tensor: 3, pipeline: 2}\nmemory: {offload: [params]}";
  EXPECT_TRUE(rejection(yaml).ends_with("use parallel.tensor = 2")) << rejection(yaml);
  EXPECT_TRUE(rejection(yaml, {{"parallel.tensor=2"}}).ends_with("use parallel.strategy = fsdp"));
  EXPECT_EQ(rejection(yaml, {{"parallel.tensor=2"}, {"parallel.strategy=fsdp"}}), "");
}

TEST(ValidateParallel, OffloadsWhatTheStrategyCan) {
  const std::string dp = "run.yaml:2: memory.offload: parallel.strategy dp offloads nothing; use ";
  EXPECT_EQ(rejection("parallel: {strategy: dp}\nmemory: {offload: [optimizer]}"),
            dp + "parallel.strategy = ddp");
  EXPECT_EQ(rejection("parallel: {strategy: dp}\nmemory: {offload: [optimizer, params]}"),
            dp + "parallel.strategy = fsdp");
  for (const std::string strategy : {"single", "ddp", "zero1", "zero2"}) {
    EXPECT_EQ(rejection("parallel: {strategy: " + strategy + "}\nmemory: {offload: [params]}"),
              "run.yaml:2: memory.offload: only parallel.strategy fsdp brings parameters in as they are "
              "needed, found " +
                  strategy + "; use parallel.strategy = fsdp or memory.offload = [optimizer]");
  }
}

TEST(ValidateParallel, SplitsLanguageModelsOverTheTensorAxis) {
  EXPECT_EQ(rejection("model: {family: resnet}\nparallel: {tensor: 2}"),
            "run.yaml:2: parallel.tensor splits gpt2 and llama only, found model.family resnet; use "
            "parallel.tensor = 1 and the data axis");
}

TEST(ValidateParallel, NamesTheTensorAxisThatDividesEverything) {
  const auto refusal = [](const std::string& key, int tensor, int whole, const std::string& use) {
    return "run.yaml:1: parallel.tensor must divide " + key + ", and " + std::to_string(tensor) +
           " does not divide " + std::to_string(whole) + "; use parallel.tensor = " + use;
  };
  EXPECT_EQ(rejection("parallel: {tensor: 4}"), refusal("model.heads", 4, 6, "2"));
  EXPECT_EQ(rejection("parallel: {tensor: 3}\nmodel: {ffn: 256}"), refusal("model.ffn", 3, 256, "2"))
      << "heads would do, all together not";
  EXPECT_EQ(rejection("parallel: {tensor: 3}\nmodel: {heads: 8, width: 64}"),
            refusal("model.heads", 3, 8, "2 or 4"));
  EXPECT_EQ(rejection("parallel: {tensor: 4}\nmodel: {family: llama, width: 64, heads: 8, kv_heads: 2}"),
            refusal("model.kv_heads", 4, 2, "2"));
  EXPECT_EQ(rejection("parallel: {tensor: 4}\nmodel: {width: 64, heads: 8, ffn: 102}"),
            refusal("model.ffn", 4, 102, "2"));
  EXPECT_EQ(rejection("parallel: {tensor: 2}\nmodel: {context: 7}\ntrain: {micro_batch: 1}"),
            refusal("train.micro_batch * model.context", 2, 7, "1"));
}

TEST(ValidateParallel, TakesAnyVocabularyOnTheTensorAxis) {
  EXPECT_EQ(rejection("parallel: {tensor: 2}\nmodel: {vocab: 257}"), "");
  EXPECT_EQ(rejection("parallel: {tensor: 3}\nmodel: {vocab: 50257}\ntrain: {micro_batch: 3, batch: 6}"), "");
}

TEST(ValidateParallel, WantsABlockForEveryPartOfThePipeline) {
  const auto refusal = [](const std::string& parts, const std::string& blocks, const std::string& use) {
    return "run.yaml:1: parallel.pipeline * parallel.chunks = " + parts + " parts need a block each, and " +
           blocks + "; use " + use;
  };
  const auto interleaved = [](int pipeline, int chunks, int layers) {
    return rejection("parallel: {schedule: interleaved, pipeline: " + std::to_string(pipeline) +
                     ", chunks: " + std::to_string(chunks) + "}\nmodel: {layers: " + std::to_string(layers) +
                     "}");
  };
  EXPECT_EQ(rejection("parallel: {pipeline: 8}"),
            refusal("8 * 1 = 8", "model.layers makes 6", "parallel.pipeline = 6"));
  EXPECT_EQ(rejection("parallel: {pipeline: 2}\nmodel: {layers: 1}"),
            refusal("2 * 1 = 2", "model.layers makes 1", "parallel.pipeline = 1"));
  EXPECT_EQ(rejection("parallel: {pipeline: 5}\nmodel: {family: resnet, blocks: [1, 3]}"),
            refusal("5 * 1 = 5", "model.blocks makes 4", "parallel.pipeline = 4"));
  EXPECT_EQ(interleaved(2, 4, 6), refusal("2 * 4 = 8", "model.layers makes 6", "parallel.chunks = 3"));
  EXPECT_EQ(interleaved(4, 2, 6),
            refusal("4 * 2 = 8", "model.layers makes 6", "parallel.chunks = 1 and parallel.schedule = 1f1b"));
  EXPECT_EQ(interleaved(8, 2, 6), refusal("8 * 2 = 16", "model.layers makes 6", "parallel.pipeline = 3"));
}

TEST(ValidateParallel, MatchesChunksToTheSchedule) {
  EXPECT_EQ(rejection("parallel: {pipeline: 2, chunks: 2}"),
            "run.yaml:1: parallel.schedule 1f1b needs parallel.chunks = 1, found 2; use parallel.schedule = "
            "interleaved or parallel.chunks = 1");
  const std::string missing =
      "run.yaml:1: parallel.schedule interleaved needs parallel.chunks of at least 2, found 1; use ";
  EXPECT_EQ(rejection("parallel: {pipeline: 2, schedule: interleaved}"),
            missing + "parallel.chunks = 2 or parallel.schedule = 1f1b");
  EXPECT_EQ(rejection("parallel: {pipeline: 4, schedule: interleaved}"), missing + "parallel.schedule = 1f1b")
      << "6 layers are no 8 parts";
}

TEST(ValidateParallel, WantsWholeRoundsOfTheInterleavedSchedule) {
  const std::string pipeline = "parallel: {pipeline: 2, schedule: interleaved, chunks: 2}\n";
  const std::string rule =
      "run.yaml:1: parallel.schedule interleaved needs passes (train.batch / (train.micro_batch * "
      "parallel.data)) in multiples of parallel.pipeline = 2, found ";
  EXPECT_EQ(rejection(pipeline + "train: {batch: 24, micro_batch: 8}"),
            rule + "24 / (8 * 1) = 3; use train.micro_batch = 6, or train.batch = 16 or 32");
  EXPECT_EQ(rejection(pipeline + "train: {batch: 3, micro_batch: 3}"),
            rule + "3 / (3 * 1) = 1; use train.batch = 6");
  EXPECT_EQ(rejection(pipeline + "train: {batch: 24, micro_batch: 6}"), "");
}

TEST(ValidateParallel, KeepsTheMeshCountable) {
  EXPECT_EQ(rejection("parallel: {tensor: 1000000, pipeline: 2000000}"),
            "run.yaml:1: a mesh has at most 1048576 ranks, found 1 * 1000000 * 2000000; use smaller axes");
}

TEST(ValidateParallel, SyncsTheNormsOfResnetOnly) {
  EXPECT_EQ(rejection("model: {family: gpt2, norm: sync}"),
            "run.yaml:1: model.norm: a gpt2 model has no such setting (it belongs to resnet); remove it");
}

TEST(ValidateParallel, ReducesOnceAStepOnlyWhereTheWholeGradientIsKept) {
  EXPECT_EQ(rejection("parallel: {strategy: zero1, data: 2, sync: step}\ntrain: {batch: 32, micro_batch: 4}"),
            "");
  EXPECT_EQ(
      rejection("parallel: {strategy: fsdp, data: 2, sync: step}\ntrain: {batch: 32, micro_batch: 4}"),
      "run.yaml:1: parallel.strategy fsdp keeps only its part of a gradient and reduces after every pass; "
      "use parallel.sync = pass, or parallel.strategy = zero1");
  EXPECT_EQ(rejection("parallel: {pipeline: 2, sync: step}"),
            "run.yaml:1: a pipeline reduces after every pass; use parallel.sync = pass");
}

TEST(ValidateParallel, BitsOfTheLayoutNeedWhatHasNoOrder) {
  const std::string layout = "train: {batch: 16, micro_batch: 2}\nparallel: {reproducible: layout";
  const std::string rule = "run.yaml:2: ";
  EXPECT_EQ(rejection(layout + "}"), "");
  EXPECT_EQ(rejection(layout + ", strategy: ddp, data: 3, tensor: 2}"), "");  // eight over three
  EXPECT_EQ(rejection(layout + ", pipeline: 2}"),
            rule +
                "parallel.pipeline: parallel.reproducible layout knows no pipeline yet; use "
                "parallel.pipeline = 1");
  EXPECT_EQ(rejection(layout + ", strategy: ddp, data: 2, sync: step}"),
            rule +
                "parallel.sync: parallel.reproducible layout adds up gradients after every pass; use "
                "parallel.sync = pass");
  EXPECT_EQ(rejection(layout + ", reduce: bf16}"),
            rule +
                "parallel.reduce: parallel.reproducible layout adds up gradients as they were made; use "
                "parallel.reduce = fp32");
  EXPECT_NE(rejection(layout + "}\nmodel: {family: resnet, norm: batch}").find("use model.norm = group"),
            std::string::npos);
  EXPECT_EQ(
      rejection("train: {batch: 15, micro_batch: 2}\nparallel: {reproducible: layout}"),
      "run.yaml:1: train.batch must be a multiple of train.micro_batch = 2, found 15; use train.batch = "
      "14 or 16");
  EXPECT_EQ(rejection("parallel: {reproducible: layout}"),
            "run.yaml:1: parallel.reproducible: needs train.micro_batch, which by default follows from the "
            "number of ranks; set it to the samples that a rank takes at once");
}

}  // namespace
}  // namespace tandem
