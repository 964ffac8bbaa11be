// CIFAR-10 and CIFAR-100 in their binary form: records of a label (CIFAR-100: a coarse and a fine one) and
// 32 x 32 pixels, all red ones first, then green, then blue.
#include <algorithm>
#include <filesystem>

#include "tandem/base/digest.h"
#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/data/images/image_source.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSide = 32, kPlane = kSide * kSide, kPixels = 3 * kPlane;

// The files of a split, in order; empty where the folder is not CIFAR's.
std::vector<fs::path> files_of(const fs::path& place, Split split) {
  std::error_code ignored;
  if (fs::is_regular_file(place, ignored)) {
    if (place.extension() == ".bin") return {place};
    return {};
  }
  std::vector<fs::path> files;
  const bool train = split == Split::Train;
  for (const char* name : {train ? "train.bin" : "test.bin", train ? "" : "test_batch.bin"}) {
    if (*name != 0 && fs::is_regular_file(place / name, ignored)) files.push_back(place / name);
  }
  for (int i = 1; train && i <= 5; ++i) {
    const fs::path file = place / fmt::format("data_batch_{}.bin", i);
    if (fs::is_regular_file(file, ignored)) files.push_back(file);
  }
  return files;
}

std::vector<std::string> names_in(const fs::path& file) {
  std::vector<std::string> names;
  if (!is_there(file)) return names;
  const std::string text = read_text(file);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) names.push_back(line);
    at = end + 1;
  }
  return names;
}

class Cifar final : public ImageSource {
 public:
  Cifar(const fs::path& place, Split split) : own_split_(fs::is_directory(place)) {
    const std::vector<fs::path> paths = files_of(place, split);
    if (paths.empty())
      throw DataError("{}: has no {}; expected CIFAR's files", place.string(),
                      split == Split::Train ? "data_batch_1.bin or train.bin" : "test_batch.bin or test.bin");
    for (const fs::path& path : paths) {
      files_.push_back({path, MappedFile(path)});
      add(files_.back());
    }
    const fs::path folder = own_split_ ? place : place.parent_path();
    classes_ = names_in(folder / (num_labels_ == 1 ? "batches.meta.txt" : "fine_label_names.txt"));
    const size_t expected = num_labels_ == 1 ? 10 : 100;
    if (classes_.size() == expected) return;
    classes_.clear();  // without the file of names: by number
    for (size_t i = 0; i < expected; ++i) classes_.push_back(fmt::format("{}", i));
  }

  int64_t num_images() const override { return ends_.back(); }
  const std::vector<std::string>& classes() const override { return classes_; }
  int32_t label(int64_t index) const override {
    const auto value = static_cast<int32_t>(record(index)[static_cast<size_t>(num_labels_ - 1)]);
    if (value >= static_cast<int32_t>(classes_.size()))
      throw DataError("{}: label {}, expected one below {}", name(index), value, classes_.size());
    return value;
  }
  std::string name(int64_t index) const override {
    const size_t file = file_of(index);
    return fmt::format("{}: image {}", files_[file].path.string(), index - (file == 0 ? 0 : ends_[file - 1]));
  }
  StoredImage read(int64_t index) const override {
    StoredImage image{std::vector<std::byte>(kPixels), kSide, kSide, 3};
    const auto pixels = record(index).subspan(static_cast<size_t>(num_labels_));
    for (size_t p = 0; p < kPlane; ++p) {
      for (size_t c = 0; c < 3; ++c) image.bytes[3 * p + c] = pixels[c * kPlane + p];
    }
    return image;
  }
  std::string identity() const override {
    std::string all;
    for (const File& file : files_) all += digest_hex(file.mapped.bytes());
    return digest_hex(std::as_bytes(std::span(all)));
  }
  bool has_own_split() const override { return own_split_; }

 private:
  struct File {
    fs::path path;
    MappedFile mapped;
  };

  void add(const File& file) {
    const auto bytes = static_cast<int64_t>(file.mapped.bytes().size());
    if (num_labels_ == 0) num_labels_ = bytes % (1 + kPixels) == 0 ? 1 : 2;
    if (bytes == 0 || bytes % (num_labels_ + kPixels) != 0) {
      throw DataError("{}: {} bytes are not whole records of CIFAR-10 ({}) or CIFAR-100 ({})",
                      file.path.string(), bytes, 1 + kPixels, 2 + kPixels);
    }
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + bytes / (num_labels_ + kPixels));
  }
  size_t file_of(int64_t index) const {
    TANDEM_CHECK(index >= 0 && index < num_images());
    return static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
  }
  std::span<const std::byte> record(int64_t index) const {
    const size_t file = file_of(index);
    const auto bytes = static_cast<size_t>(num_labels_ + kPixels);
    const auto at = static_cast<size_t>(index - (file == 0 ? 0 : ends_[file - 1]));
    return files_[file].mapped.bytes().subspan(at * bytes, bytes);
  }

  bool own_split_;
  int64_t num_labels_ = 0;
  std::vector<File> files_;
  std::vector<int64_t> ends_;  // images up to and with each file
  std::vector<std::string> classes_;
};

}  // namespace

bool is_cifar(const std::string& place) {
  return !files_of(place, Split::Train).empty() || !files_of(place, Split::Eval).empty();
}

std::unique_ptr<ImageSource> open_cifar(const std::string& place, Split split) {
  return std::make_unique<Cifar>(place, split);
}

}  // namespace tandem
