#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/data/images/image_source.h"
#include "tandem/store/store.h"

namespace tandem {
namespace {

constexpr int64_t kHeldOut = 20;  // one of so many

class ImagePart final : public ImageSource {
 public:
  ImagePart(std::unique_ptr<ImageSource> whole, Split split) : whole_(std::move(whole)) {
    const int64_t count = whole_->num_images();
    for (int64_t i = 0; i < count; ++i) {
      const bool held_out = count < kHeldOut ? i == count - 1 : i % kHeldOut == kHeldOut - 1;
      if (held_out == (split == Split::Eval)) indices_.push_back(i);
    }
  }
  int64_t num_images() const override { return static_cast<int64_t>(indices_.size()); }
  const std::vector<std::string>& classes() const override { return whole_->classes(); }
  int32_t label(int64_t index) const override { return whole_->label(at(index)); }
  std::string name(int64_t index) const override { return whole_->name(at(index)); }
  StoredImage read(int64_t index) const override { return whole_->read(at(index)); }
  void expect(int64_t index) const override { whole_->expect(at(index)); }
  std::string identity() const override {
    return fmt::format("{} {} of {}", whole_->identity(), num_images(), whole_->num_images());
  }

 private:
  int64_t at(int64_t index) const { return indices_[static_cast<size_t>(index)]; }
  std::unique_ptr<ImageSource> whole_;
  std::vector<int64_t> indices_;
};

}  // namespace

std::unique_ptr<ImageSource> part_of(std::unique_ptr<ImageSource> whole, Split split,
                                     const std::string& place) {
  if (whole->num_images() < 2) {
    throw DataError(
        "{}: one image is too few to keep some apart for evaluation; use another set as data.eval", place);
  }
  return std::make_unique<ImagePart>(std::move(whole), split);
}

std::unique_ptr<ImageSource> open_images(const std::string& place, Split split) {
  if (is_remote(place)) return open_prepared_images(place, split);
  if (!is_there(place)) {
    throw DataError(
        "{}: no such file or directory: expected builtin:shapes, a directory with a folder for each class, "
        "CIFAR's .bin files, or a set that tandem prepare --images wrote",
        place);
  }
  if (is_cifar(place)) return open_cifar(place, split);
  if (!std::filesystem::is_directory(place)) {
    throw DataError(
        "{}: is a file, and not CIFAR's .bin: the model takes images; expected a directory with a folder for "
        "each class",
        place);
  }
  if (is_there(std::filesystem::path(place) / "index.json")) return open_prepared_images(place, split);
  return open_image_folder(place, split);
}

}  // namespace tandem
