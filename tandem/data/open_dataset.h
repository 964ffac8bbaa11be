// From what a config's data.train or data.eval says to a Dataset.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tandem/data/dataset.h"
#include "tandem/data/images/image_set.h"

namespace tandem {

struct DatasetOptions {
  uint64_t seed = 1;
  int64_t context = 256;    // token sets: tokens a sample
  int64_t image_size = 32;  // image sets: pixels a side
  int64_t channels = 3;     // of images from files
  ImageOptions images = {};
  int64_t max_classes =
      0;  // the model's vocabulary or number of labels, which must hold every target; 0 = any
  std::optional<SampleKind> kind = {};  // what the model takes; any if not given
  std::string tokenizer = "bytes";
  bool keep_end_apart =
      false;  // both sets are this one: its end, or every twentieth image, is for evaluation
  bool separate_documents = false;  // SampleSpec::documents, of tokens
  bool verify_digests = false;      // read all shards and check them before the first step
};

// `name` is builtin:stories, builtin:shapes, a text file, images as image_source.h lists them, or a directory
// or s3://BUCKET/PREFIX that `tandem prepare` wrote. Throws ConfigError for what the config should say
// otherwise, DataError for what is wrong on disk.
std::unique_ptr<Dataset> open_dataset(std::string_view name, Split split, const DatasetOptions& options);

}  // namespace tandem
