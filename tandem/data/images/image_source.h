// Labelled images as they are kept somewhere: a folder for each class, CIFAR's binary files, or a prepared
// set.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/data/dataset.h"
#include "tandem/data/images/channel_sums.h"
#include "tandem/data/images/picture.h"

namespace tandem {

class ImageSource {
 public:
  virtual ~ImageSource() = default;
  virtual int64_t num_images() const = 0;
  virtual const std::vector<std::string>& classes() const = 0;  // by label
  // All of these from any thread.
  virtual int32_t label(int64_t index) const = 0;
  virtual std::string name(int64_t index) const = 0;  // for messages: the file, or the place in one
  virtual StoredImage read(int64_t index) const = 0;  // throws DataError or IoError naming it
  virtual void expect(int64_t /*index*/) const {}     // will be read soon

  // Changes where the images do.
  virtual std::string identity() const = 0;
  // Of all training images, where the set keeps them.
  virtual std::optional<ChannelSums> kept_sums() const { return std::nullopt; }
  // Whether it keeps images for evaluation apart by itself.
  virtual bool has_own_split() const { return false; }
};

// A directory with a folder for each class, or with train/ and val/ (or eval/, test/) that have them; one
// with CIFAR's .bin files, or one such file; a directory or s3://BUCKET/PREFIX that `tandem prepare --images`
// wrote. Throws DataError for anything else.
std::unique_ptr<ImageSource> open_images(const std::string& place, Split split);

std::unique_ptr<ImageSource> open_image_folder(const std::string& folder, Split split);  // image_folder.cpp
std::unique_ptr<ImageSource> open_cifar(const std::string& place, Split split);          // cifar.cpp
bool is_cifar(const std::string& place);
std::unique_ptr<ImageSource> open_prepared_images(const std::string& place,
                                                  Split split);  // prepared_images.cpp

// Of a source that is trained on and evaluated on: every twentieth image for evaluation, the others for
// training.
std::unique_ptr<ImageSource> part_of(std::unique_ptr<ImageSource> whole, Split split,
                                     const std::string& place);

}  // namespace tandem
