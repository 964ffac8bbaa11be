#include "tandem/models/model.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/ir/text.h"
#include "tandem/ir/verify.h"
#include "tandem/models/family_models_test.h"

namespace tandem {
namespace {

int64_t num_params(const Graph& graph) {
  int64_t count = 0;
  for (const Node& node : graph.nodes()) count += node.op == Op::Param ? node.outputs[0].shape.elems() : 0;
  return count;
}

ModelConfig transformer(Family family, int64_t vocab, int64_t layers, int64_t width, int64_t heads,
                        int64_t context) {
  ModelConfig config;
  config.family = family;
  config.vocab = vocab;
  config.layers = layers;
  config.width = width;
  config.heads = heads;
  config.context = context;
  config.tied = true;
  config.qkv_bias = family == Family::Gpt2;
  return config;
}

// The counts that PyTorch gives for the same shapes.
TEST(Models, HaveAsManyParametersAsTheirPublishedForms) {
  EXPECT_EQ(num_params(build_model(transformer(Family::Gpt2, 50304, 12, 768, 12, 1024), 1)), 124'475'904);
  EXPECT_EQ(num_params(build_model(transformer(Family::Gpt2, 256, 6, 384, 6, 256), 1)), 10'844'160);
  ModelConfig llama = transformer(Family::Llama, 4096, 4, 512, 8, 256);
  llama.kv_heads = 4;
  llama.ffn = 1408;
  EXPECT_EQ(num_params(build_model(llama, 1)), 13'898'240);
}

TEST(Models, AreResNetsOfImageNet) {
  ModelConfig config;
  config.family = Family::Resnet;
  config.width = 64;
  config.image_size = 224;
  config.classes = 1000;
  config.stem = ImageStem::Imagenet;
  config.blocks = {2, 2, 2, 2};
  EXPECT_EQ(num_params(build_model(config, 1)), 11'689'512);
  config.blocks = {3, 4, 6, 3};
  EXPECT_EQ(num_params(build_model(config, 1)), 21'797'672);
  config.bottleneck = true;
  EXPECT_EQ(num_params(build_model(config, 1)), 25'557'032);
}

TEST(Models, VerifyAndNameEveryBlock) {
  for (Family family : {Family::Gpt2, Family::Llama, Family::Resnet, Family::Mlp}) {
    ModelConfig config = transformer(family, 32, 2, 16, 2, 8);
    config.image_size = 8;
    const Graph graph = build_model(config, 3);
    verify(graph, "model");
    EXPECT_EQ(graph.outputs().back().name, "stats");
    EXPECT_TRUE(family == Family::Mlp ? graph.find("blocks.1.hidden.weight").valid()
                                      : graph.find("blocks.1.norm1.weight").valid());
  }
}

TEST(Models, OfEveryFamilyVerifyAndAreReadBackFromText) {
  for (const FamilyModel& family : family_models()) {
    SCOPED_TRACE(family.name);
    const Graph graph = build_model(family.model, 3);
    verify(graph, "model");
    EXPECT_EQ(print(parse_graph(print(graph))), print(graph));
  }
}

// Keys that are at their defaults leave no trace: plans and bits of models without them stay.
TEST(Models, APlainLlamaHasNoneOfWhatFamiliesAdd) {
  const std::string text = print(build_model(transformer(Family::Llama, 32, 2, 16, 2, 8), 1));
  for (const char* word : {"qk_norm", "scale", "softcap", "geglu", "window", "dims=2", "scaling", "plus_one",
                           "bias", "post_norm"})
    EXPECT_EQ(text.find(word), std::string::npos) << word;
}

TEST(OwnModel, TakesTheBuiltInModelsPlace) {
  const BuildModel model = own_model([](Builder& b, const ModelConfig& c) {
    b.cross_entropy(b.linear(b.embedding(c.vocab, c.width, false), c.vocab, "head"));
  });
  const Graph graph = model(transformer(Family::Gpt2, 32, 1, 16, 2, 8), 5);
  EXPECT_EQ(graph.type(graph.find("tokens")).shape, Shape({5, 8}));
  EXPECT_TRUE(graph.find("head.weight").valid());
}

TEST(OwnModel, MistakesAreErrorsThatNameTheParameter) {
  Builder b = Builder::for_tokens(2, 4);
  b.embedding(8, 4, false);
  EXPECT_THROW(b.embedding(8, 4, false), ConfigError) << "two of one name";
  EXPECT_THROW(b.param_named("embd.weight"), ConfigError);
}

}  // namespace
}  // namespace tandem
