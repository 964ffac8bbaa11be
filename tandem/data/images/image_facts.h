// What has to be known of a training set before images of it, or of the set it is evaluated on, are used: its
// classes and the scale of its channels.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tandem/data/images/channel_sums.h"
#include "tandem/data/images/image_source.h"

namespace tandem {

struct ImageFacts {
  std::vector<std::string> classes = {};  // empty: of built-in images
  ChannelScale scale = ChannelScale::fixed();
  std::string note = {};  // what a user should know of how they were made; empty: nothing
};

struct FactsOptions {
  int64_t side = 32, channels = 3;
  bool normalize = true;     // else the scale is fixed
  bool skip_broken = false;  // images that cannot be read do not count; else they throw
};

// Sums over what a model sees of a set: of up to kMostSummed images, evenly spread. They are kept in the
// machine's cache directory, so that they are made once, unless the set keeps them itself; where they cannot
// be kept, `note` says so.
inline constexpr int64_t kMostSummed = 4096;
ChannelSums channel_sums(const ImageSource& source, const FactsOptions& options, std::string& note);

// Of several sets together, which must have the same classes.
ImageFacts image_facts(std::span<const std::unique_ptr<ImageSource>> sources,
                       std::span<const std::string> names, const FactsOptions& options);

// For each label of `source` the one among `classes`; throws DataError for a class that is not there.
std::vector<int32_t> labels_among(const ImageSource& source, const std::vector<std::string>& classes,
                                  const std::string& name);

}  // namespace tandem
