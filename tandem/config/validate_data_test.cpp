#include "tandem/config/validate_data.h"

#include <gtest/gtest.h>

#include "tandem/config/rejection_test.h"

namespace tandem {
namespace {

TEST(ValidateData, MatchesBuiltInSetsToTheModel) {
  EXPECT_EQ(rejection("data: {train: builtin:shapes}"),
            "run.yaml:1: data.train = builtin:shapes does not suit model.family gpt2, which takes text; use "
            "builtin:stories, a text file or prepared shards");
  EXPECT_EQ(rejection("model: {family: mlp}\ndata: {eval: builtin:stories}"),
            "run.yaml:2: data.eval = builtin:stories does not suit model.family mlp, which takes images; use "
            "builtin:shapes or a folder of images");
  EXPECT_EQ(rejection("model: {family: resnet}", {{"data.train=builtin:shape"}}),
            "--set data.train: no such built-in set: 'builtin:shape'; did you mean builtin:shapes?");
}

TEST(ValidateData, TakesImagesFromFilesInColourOrGrey) {
  for (const std::string family : {"resnet", "mlp"}) {
    const std::string model = "model: {family: " + family + ", classes: 3, image_size: 8, channels: ";
    EXPECT_EQ(rejection(model + "1}", {{"data.train=photos/"}}), "");
    EXPECT_EQ(rejection(model + "3}", {{"data.train=photos/"}}), "");
    EXPECT_EQ(rejection(model + "4}", {{"data.train=photos/"}}),
              "run.yaml:1: images from files have 3 channels, or 1 as grey ones, found model.channels = 4");
  }
}

TEST(ValidateData, WantsImagesOfTheSizeThatTheSetHas) {
  EXPECT_EQ(rejection("model: {family: mlp, channels: 4}"),
            "run.yaml:1: the images of builtin:shapes have 3 channels, found model.channels = 4; use 3");
  EXPECT_EQ(rejection("model: {family: mlp, image_size: 8}"),
            "run.yaml:1: builtin:shapes needs model.image_size of at least 16, found 8");
  EXPECT_EQ(rejection("model: {family: resnet, classes: 5}"),
            "run.yaml:1: builtin:shapes needs model.classes of at least 10, found 5");
}

TEST(ValidateData, WantsAVocabularyForEveryByte) {
  EXPECT_EQ(rejection("model: {vocab: 100}"),
            "run.yaml:1: the bytes tokenizer needs model.vocab of at least 256, found 100");
}

}  // namespace
}  // namespace tandem
