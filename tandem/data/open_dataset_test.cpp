#include "tandem/data/open_dataset.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/data/prepare/prepare.h"
#include "tandem/text/byte_level_test.h"

namespace tandem {
namespace {

TEST(OpenDataset, OpensWhatIsBuiltIn) {
  const auto stories = open_dataset("builtin:stories", Split::Train, {.context = 64, .max_classes = 256});
  EXPECT_EQ(stories->spec().kind, SampleKind::Tokens);
  EXPECT_EQ(stories->spec().context, 64);
  EXPECT_TRUE(stories->loss_floor().has_value());
  EXPECT_FALSE(stories->best_accuracy().has_value());
  const auto shapes = open_dataset("builtin:shapes", Split::Eval, {.image_size = 24, .max_classes = 10});
  EXPECT_EQ(shapes->spec().kind, SampleKind::Images);
  EXPECT_EQ(shapes->spec().input_elems(), 24 * 24 * 3);
  EXPECT_EQ(shapes->spec().num_targets(), 1);
}

TEST(OpenDataset, OpensTextFilesAndPreparedDirectories) {
  const TemporaryDirectory scratch;
  const auto file = scratch.write("a.txt", std::string(1000, 'x'));
  const std::string name = file.string();
  prepare_text(std::span(&name, 1), scratch.path() / "set", {.eval_fraction = 0.2});
  const DatasetOptions options{.context = 10};
  EXPECT_EQ(open_dataset(file.string(), Split::Train, options)->num_samples(), 100);
  EXPECT_FALSE(open_dataset(file.string(), Split::Train, options)->loss_floor().has_value());
  EXPECT_EQ(open_dataset((scratch.path() / "set").string(), Split::Train, options)->num_samples(), 80);
  EXPECT_EQ(open_dataset((scratch.path() / "set").string(), Split::Eval, options)->num_samples(), 20);
}

TEST(OpenDataset, TakesASetOfTheSameTokenizerOnly) {
  const TemporaryDirectory scratch;
  const std::string tokenizer = scratch.write("tokenizer.json", byte_level_json()).string();
  const std::string file = scratch.write("a.txt", std::string(1000, 'x')).string();
  const std::string set = (scratch.path() / "set").string();
  prepare_text(std::span(&file, 1), set, {.tokenizer = tokenizer});
  EXPECT_EQ(open_dataset(set, Split::Train, {.context = 10, .tokenizer = tokenizer})->spec().num_classes,
            kByteLevelVocab);
  EXPECT_GT(open_dataset(set, Split::Eval, {.context = 10, .tokenizer = set})->num_samples(), 0);  // its copy
  EXPECT_GT(open_dataset(file, Split::Eval, {.context = 10, .tokenizer = set})->num_samples(), 0);
  EXPECT_EQ(message_of<DataError>([&] { open_dataset(set, Split::Train, {.context = 10}); }),
            set + ": was prepared with tokenizer " + tokenizer +
                " (261 tokens), but data.tokenizer is bytes; set data.tokenizer to " + set +
                ", or prepare it again");
  scratch.write("tokenizer.json", byte_level_json() + "\n");
  EXPECT_THROW(open_dataset(set, Split::Train, {.context = 10, .tokenizer = tokenizer}), DataError);
  EXPECT_EQ(message_of<ConfigError>([&] {
              open_dataset(set, Split::Train, {.context = 10, .max_classes = 260, .tokenizer = set});
            }),
            set + ": its tokens go up to 260, but model.vocab is 260; set it to at least 261");
  EXPECT_THROW(open_dataset("builtin:stories", Split::Train, {.tokenizer = set}), ConfigError);
}

TEST(OpenDataset, NamesTheNearestBuiltIn) {
  EXPECT_EQ(message_of<ConfigError>([] { open_dataset("builtin:storys", Split::Train, {}); }),
            "data 'builtin:storys': no such built-in set; did you mean builtin:stories?");
  EXPECT_EQ(message_of<ConfigError>([] { open_dataset("builtin:shape", Split::Train, {}); }),
            "data 'builtin:shape': no such built-in set; did you mean builtin:shapes?");
}

TEST(OpenDataset, RefusesMissingAndEmptyFiles) {
  const TemporaryDirectory scratch;
  const std::string absent = (scratch.path() / "absent.txt").string();
  EXPECT_EQ(
      message_of<DataError>([&] { open_dataset(absent, Split::Train, {}); }).find(absent + ": no such file"),
      0u);
  const auto empty = scratch.write("empty.txt", "");
  EXPECT_EQ(message_of<DataError>([&] { open_dataset(empty.string(), Split::Train, {}); }),
            empty.string() + ": file is empty: expected text");
  EXPECT_THROW(open_dataset(scratch.path().string(), Split::Train, {}), DataError);
}

TEST(OpenDataset, RefusesTargetsThatTheModelDoesNotHave) {
  EXPECT_EQ(
      message_of<ConfigError>([] { open_dataset("builtin:stories", Split::Train, {.max_classes = 100}); }),
      "builtin:stories: its tokens go up to 255, but model.vocab is 100; set it to at least 256");
  EXPECT_EQ(message_of<ConfigError>([] { open_dataset("builtin:shapes", Split::Train, {.max_classes = 5}); }),
            "builtin:shapes: its labels go up to 9, but model.classes is 5; set it to at least 10");
}

TEST(OpenDataset, RefusesTheOtherKindOfSamples) {
  EXPECT_EQ(message_of<ConfigError>([] {
              open_dataset("builtin:stories", Split::Train, {.max_classes = 10, .kind = SampleKind::Images});
            }),
            "builtin:stories: holds text, but the model takes images; use builtin:shapes");
  EXPECT_EQ(message_of<ConfigError>(
                [] { open_dataset("builtin:shapes", Split::Train, {.kind = SampleKind::Tokens}); }),
            "builtin:shapes: holds images, but the model takes text; use builtin:stories or a text file");
}

TEST(OpenDataset, RefusesImagesTooSmallToTellShapesApart) {
  EXPECT_EQ(message_of<ConfigError>([] { open_dataset("builtin:shapes", Split::Train, {.image_size = 8}); }),
            "builtin:shapes: image size 8: expected at least 16");
}

}  // namespace
}  // namespace tandem
