// Folders, CIFAR's files and prepared sets of images, from the files to what a loader delivers.
#include "tandem/data/images/image_set.h"

#include <gtest/gtest.h>

#include <fstream>

#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/data/images/encoded_test.h"
#include "tandem/data/loader.h"
#include "tandem/data/open_dataset.h"
#include "tandem/data/prepare/prepare_images.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// A folder of images, and a cache directory of its own for the sums of channels.
class Images : public testing::Test {
 protected:
  Images() : folder_((scratch_.path() / "photos").string()) {
    StorageOptions storage;
    storage.cache = (scratch_.path() / "cache").string();
    use_storage(storage);
    write_classes(folder_, 14);
  }
  ~Images() override { use_storage({}); }

  static DatasetOptions options(int64_t classes = 3) {
    return {.image_size = 16, .max_classes = classes, .kind = SampleKind::Images};
  }
  static std::vector<float> image(const Dataset& set, int64_t index, int32_t* label = nullptr,
                                  int64_t draw = -1) {
    std::vector<float> pixels(static_cast<size_t>(set.spec().input_elems()));
    int32_t target = 0;
    set.fill(index, {.image = pixels.data(), .targets = &target, .draw = draw});
    if (label != nullptr) *label = target;
    return pixels;
  }

  TemporaryDirectory scratch_;
  const std::string folder_;
};

TEST_F(Images, AFolderIsAClassInSortedOrder) {
  const auto set = open_dataset(folder_, Split::Train, options());
  EXPECT_EQ(set->num_samples(), 42);
  EXPECT_EQ(set->spec().num_classes, 3);
  for (const int64_t index : {0, 13, 14, 41}) {
    int32_t label = -1;
    const std::vector<float> pixels = image(*set, index, &label);
    EXPECT_EQ(label, index / 14);
    EXPECT_NEAR((pixels[2] + 2) * 255 / 4, 20 + 100 * label, 8);  // blue
  }
}

TEST_F(Images, ClassesAreThoseOfTheModel) {
  EXPECT_EQ(message_of<ConfigError>([&] { open_dataset(folder_, Split::Train, options(10)); }),
            folder_ + ": has 3 classes, but model.classes is 10; set it to 3");
}

TEST_F(Images, EvaluationKnowsTheClassesOfTraining) {
  DatasetOptions with = options();
  with.images.facts.classes = {"cat", "dog", "owl"};
  fs::remove_all(fs::path(folder_) / "cat");
  int32_t label = -1;
  image(*open_dataset(folder_, Split::Eval, with), 0, &label);
  EXPECT_EQ(label, 1);
  write_image(fs::path(folder_) / "yak" / "a.png", png_of(smooth_picture(8, 8)));
  EXPECT_EQ(message_of<DataError>([&] { open_dataset(folder_, Split::Eval, with); }),
            folder_ + ": class yak is not one of data.train, which has 3: cat, dog, owl");
}

TEST_F(Images, SomeAreKeptApartWhereTrainingAndEvaluationAreOne) {
  DatasetOptions with = options();
  with.keep_end_apart = true;
  const auto train = open_dataset(folder_, Split::Train, with),
             eval = open_dataset(folder_, Split::Eval, with);
  EXPECT_EQ(train->num_samples(), 40);
  EXPECT_EQ(eval->num_samples(), 2);
  EXPECT_NE(train->note().find("2 of 42 images are kept for evaluation"), std::string::npos);
}

TEST_F(Images, TrainAndValFoldersAreTheSplits) {
  const fs::path both = scratch_.path() / "both";
  write_classes(both / "train", 3);
  write_classes(both / "val", 2);
  EXPECT_EQ(open_dataset(both.string(), Split::Train, options())->num_samples(), 9);
  EXPECT_EQ(open_dataset(both.string(), Split::Eval, options())->num_samples(), 6);
}

TEST_F(Images, ChannelsGetTheMeanAndDeviationOfTheSet) {
  std::vector<std::unique_ptr<ImageSource>> sources;
  sources.push_back(open_images(folder_, Split::Train));
  const std::vector<std::string> names{folder_};
  const FactsOptions how{.side = 16};
  DatasetOptions with = options();
  with.images.facts = image_facts(sources, names, how);
  const auto set = open_dataset(folder_, Split::Train, with);
  double sums[3] = {}, squares[3] = {};
  for (int64_t i = 0; i < set->num_samples(); ++i) {
    const std::vector<float> pixels = image(*set, i);
    for (size_t p = 0; p < pixels.size(); ++p) {
      sums[p % 3] += pixels[p];
      squares[p % 3] += pixels[p] * pixels[p];
    }
  }
  const double count = 42 * 16 * 16;
  for (int c = 0; c < 3; ++c) {
    EXPECT_NEAR(sums[c] / count, 0, 0.01);
    EXPECT_NEAR(squares[c] / count, 1, 0.02);
  }
  // They were kept: what is asked again is not computed.
  int files = 0;
  for (const auto& entry : fs::directory_iterator(scratch_.path() / "cache" / "images")) {
    ++files;
    write_atomically(entry.path(), R"({"pixels":1,"sums":[7,7,7],"squares":[50,50,50]})");
  }
  EXPECT_EQ(files, 1);
  std::string note;
  EXPECT_EQ(channel_sums(*sources[0], how, note).sums[0], 7u);
}

TEST_F(Images, SumsThatCannotBeKeptAreSaidToBeMadeAgain) {
  std::ofstream(scratch_.path() / "cache") << "in the way";
  std::vector<std::unique_ptr<ImageSource>> sources;
  sources.push_back(open_images(folder_, Split::Train));
  const std::vector<std::string> names{folder_};
  DatasetOptions with = options();
  with.images.facts = image_facts(sources, names, {.side = 16});
  const std::string note = open_dataset(folder_, Split::Train, with)->note();
  EXPECT_NE(note.find("means and deviations of 42 images are made again at every start"), std::string::npos)
      << note;
}

TEST_F(Images, ABrokenOneStopsOrIsLeftOutAndCounted) {
  const fs::path broken = fs::path(folder_) / "dog" / "3.png";
  fs::resize_file(broken, 100);
  const int64_t at = 14 + 7;  // sorted by name: 0 1 10 11 12 13 2 3
  const auto stops = open_dataset(folder_, Split::Train, options());
  EXPECT_EQ(message_of<DataError>([&] { image(*stops, at); }).find(broken.string() + ": broken image: "), 0u);
  DatasetOptions with = options();
  with.images.skip_broken = true;
  const auto skips = open_dataset(folder_, Split::Train, with);
  EXPECT_EQ(image(*skips, at), image(*skips, at + 1));
  EXPECT_EQ(skips->num_left_out(), 1);
  EXPECT_EQ(skips->num_valid_targets(at), 1);
  const auto evaluated = open_dataset(folder_, Split::Eval, with);
  int32_t label = 0;
  image(*evaluated, at, &label);
  EXPECT_EQ(label, kNoTarget);
  EXPECT_EQ(evaluated->num_valid_targets(at), 0);
}

// The second record's label counts; 32 x 32 planes of red, green and blue.
TEST_F(Images, ReadsCifarsFiles) {
  std::string ten, hundred;
  for (int i = 0; i < 4; ++i) {
    std::string planes = std::string(1024, static_cast<char>(10 * i)) + std::string(1024, '\x64') +
                         std::string(1024, static_cast<char>(200));
    ten += std::string(1, static_cast<char>(9 - i)) + planes;
    hundred += std::string(1, '\x05') + std::string(1, static_cast<char>(99 - i)) + planes;
  }
  const fs::path folder = scratch_.path() / "cifar";
  write_image(folder / "data_batch_1.bin", ten);
  write_image(folder / "data_batch_2.bin", ten);
  write_image(folder / "test_batch.bin", ten.substr(0, 3073));
  DatasetOptions with = options(10);
  with.image_size = 32;
  const auto train = open_dataset(folder.string(), Split::Train, with);
  EXPECT_EQ(train->num_samples(), 8);
  EXPECT_EQ(open_dataset(folder.string(), Split::Eval, with)->num_samples(), 1);
  int32_t label = 0;
  const std::vector<float> pixels = image(*train, 5, &label);
  EXPECT_EQ(label, 8);
  EXPECT_NEAR((pixels[0] + 2) * 255 / 4, 10, 1e-3);
  EXPECT_NEAR((pixels[1] + 2) * 255 / 4, 100, 1e-3);
  EXPECT_NEAR((pixels[2] + 2) * 255 / 4, 200, 1e-3);
  with.max_classes = 100;
  const fs::path file = scratch_.path() / "hundred.bin";
  write_image(file, hundred);
  image(*open_dataset(file.string(), Split::Train, with), 1, &label);
  EXPECT_EQ(label, 98);
  fs::resize_file(file, 5000);
  EXPECT_THROW(open_dataset(file.string(), Split::Train, with), DataError);
}

TEST_F(Images, PreparedOnesAreTheSameImages) {
  const fs::path as_files = scratch_.path() / "files", as_pixels = scratch_.path() / "pixels";
  const PrepareImagesStats stats = prepare_images(folder_, as_files, {.eval_fraction = 0.1, .threads = 3});
  EXPECT_EQ(stats.train_images, 38);
  EXPECT_EQ(stats.eval_images, 4);
  prepare_images(folder_, as_pixels, {.size = 16, .eval_fraction = 0.1, .shard_bytes = 8000});
  const auto folder = open_dataset(folder_, Split::Train, options());
  const auto files = open_dataset(as_files.string(), Split::Train, options());
  const auto pixels = open_dataset(as_pixels.string(), Split::Train, options());
  EXPECT_EQ(files->num_samples(), 38);
  EXPECT_EQ(pixels->num_samples(), 38);
  EXPECT_EQ(open_dataset(as_pixels.string(), Split::Eval, options())->num_samples(), 4);
  EXPECT_EQ(image(*files, 3), image(*folder, 3));
  const std::vector<float> a = image(*pixels, 3), b = image(*folder, 3);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 0.51 * 4 / 255);  // rounded
  EXPECT_TRUE(open_images(as_files.string(), Split::Train)->kept_sums().has_value());
  EXPECT_THROW(prepare_images(folder_, as_files, {}), ConfigError);
  EXPECT_FALSE(fs::exists(as_files.string() + ".partial"));
}

TEST_F(Images, PreparingNamesABrokenOneAndLeavesNothing) {
  const fs::path broken = fs::path(folder_) / "owl" / "0.jpg", out = scratch_.path() / "out";
  fs::resize_file(broken, 50);
  EXPECT_EQ(message_of<DataError>([&] { prepare_images(folder_, out, {}); }).find(broken.string()), 0u);
  EXPECT_FALSE(fs::exists(out));
  EXPECT_FALSE(fs::exists(out.string() + ".partial"));
  EXPECT_EQ(prepare_images(folder_, out, {.skip_broken = true}).num_broken, 1);
}

TEST_F(Images, ADamagedShardIsFoundWhenItIsOpened) {
  const fs::path out = scratch_.path() / "out", shard = out / "train-00000.images";
  prepare_images(folder_, out, {});
  fs::resize_file(shard, fs::file_size(shard) - 10);
  EXPECT_EQ(message_of<DataError>([&] {
              open_dataset(out.string(), Split::Train, options());
            }).find(shard.string() + ": cut off or damaged"),
            0u);
}

TEST_F(Images, NoChangedByteOfAShardGoesUnnoticed) {
  const fs::path one = scratch_.path() / "one", out = scratch_.path() / "out",
                 shard = out / "train-00000.images";
  for (const char* name : {"cat", "owl"}) write_image(one / name / "a.png", png_of(smooth_picture(8, 8)));
  prepare_images(one.string(), out, {.size = 6, .eval_fraction = 0});
  const std::string good = read_text(shard);
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x41);
    std::ofstream(shard, std::ios::binary) << bad;
    const std::string found = message_of<DataError>([&] {
      const auto images = open_images(out.string(), Split::Train);
      for (int64_t i = 0; i < images->num_images(); ++i) images->read(i);
    });
    EXPECT_EQ(found.find(shard.string()), 0u) << at << ": " << found;
  }
  for (size_t bytes = 0; bytes < good.size(); bytes += 7) {
    std::ofstream(shard, std::ios::binary) << good.substr(0, bytes);
    EXPECT_NE(message_of<DataError>([&] { open_images(out.string(), Split::Train); }), "") << bytes;
  }
}

// Every rank and every number of workers gets the same changed images, before and after a seek.
TEST_F(Images, ChangesDependOnTheSampleAndItsEpochAlone) {
  DatasetOptions with = options();
  with.images.augmentation = {.flip = true, .pad = 2, .crop = 0.3, .color = 0.4};
  const auto set = open_dataset(folder_, Split::Train, with);
  const auto images_of = [&](int64_t workers, int64_t rank, int64_t world, int64_t from) {
    const LoaderOptions load{
        .global_batch = 8, .micro_batch = 4, .rank = rank, .world_size = world, .workers = workers};
    const auto bytes = static_cast<size_t>(loader_bytes(set->spec(), load));
    std::vector<std::byte> memory(bytes + 64);
    void* start = memory.data();
    size_t space = memory.size();
    std::align(64, bytes, start, space);
    Loader loader(*set, load, {static_cast<std::byte*>(start), bytes});
    loader.seek(from);
    std::vector<std::vector<float>> seen;
    for (int i = 0; i < 8 / static_cast<int>(world); ++i) {
      const MicroBatch batch = loader.next();
      const auto elems = static_cast<size_t>(set->spec().input_elems());
      seen.emplace_back(batch.images, batch.images + 4 * elems);
    }
    return seen;
  };
  const auto alone = images_of(0, 0, 1, 40), team = images_of(3, 0, 1, 40);
  EXPECT_EQ(alone, team);
  const auto first = images_of(2, 0, 2, 40), second = images_of(1, 1, 2, 40);
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i], alone[2 * i]);
    EXPECT_EQ(second[i], alone[2 * i + 1]);
  }
  const auto later = images_of(2, 0, 1, 48);
  EXPECT_EQ(later[0], alone[2]);
  EXPECT_NE(image(*set, 0, nullptr, 0), image(*set, 0, nullptr, 42));  // the same image in the next epoch
  EXPECT_EQ(image(*set, 0), image(*open_dataset(folder_, Split::Train, options()), 0));
}

TEST(ChangedImages, ShapesAreChangedInTrainingOnly) {
  DatasetOptions with{.image_size = 16, .kind = SampleKind::Images};
  with.images.augmentation = {.flip = true, .pad = 3, .crop = 0.5};
  const auto set = open_dataset("builtin:shapes", Split::Train, with);
  const auto plain = open_dataset("builtin:shapes", Split::Train, {.image_size = 16});
  std::vector<float> a(16 * 16 * 3), b(a.size());
  int32_t label = 0;
  set->fill(5, {.image = a.data(), .targets = &label});
  plain->fill(5, {.image = b.data(), .targets = &label});
  EXPECT_EQ(a, b);
  set->fill(5, {.image = a.data(), .targets = &label, .draw = 5});
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace tandem
