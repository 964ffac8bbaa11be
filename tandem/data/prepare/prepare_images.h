// `tandem prepare --images`: a folder of images, or CIFAR's files, to a directory of shards (image_shard.h)
// with an index.json that lists them by split, the classes and the sums of the channels. The directory
// appears whole or not at all, with the same bytes on any number of threads. A run that was killed begins
// anew.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "tandem/data/held_out.h"

namespace tandem {

struct PrepareImagesOptions {
  int64_t size = 0;  // the middle square of each image as pixels, so many a side; 0 = files as they are
  double eval_fraction = kHeldOutFraction;  // where the folder has none for evaluation: evenly spread
  bool skip_broken = false;                 // images that cannot be read are left out, else it ends there
  int threads = 0;                          // 0 = all cores
  int64_t shard_bytes = int64_t{256} << 20;
  std::function<void(int64_t done, int64_t total)> progress = {};  // images
  std::function<void(const std::string& message)> tell = {};       // what a user should know
};

struct PrepareImagesStats {
  int64_t train_images = 0, eval_images = 0;
  int64_t num_classes = 0;
  int64_t num_broken = 0;  // left out
  int64_t num_shards = 0;
  int64_t bytes = 0;
};

// `out` is a directory, or s3://BUCKET/PREFIX: then each shard goes there when it is full, the index last.
PrepareImagesStats prepare_images(const std::string& folder, const std::filesystem::path& out,
                                  const PrepareImagesOptions& options);

}  // namespace tandem
