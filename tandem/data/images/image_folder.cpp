// A folder for each class, its name the class's, with JPEG and PNG files in it or below.
#include <algorithm>
#include <cctype>
#include <filesystem>

#include "tandem/base/digest.h"
#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/data/images/image_source.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with("."); }

bool is_image(const fs::path& path) {
  std::string end = path.extension().string();
  std::transform(end.begin(), end.end(), end.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return end == ".jpg" || end == ".jpeg" || end == ".png";
}

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory() && !is_hidden(entry.path())) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// The part of a folder that a split reads, where it has train/ and val/.
fs::path root_of(const fs::path& folder, Split split, bool& own_split) {
  own_split = false;
  if (!fs::is_directory(folder / "train")) return folder;
  for (const char* name : {"val", "eval", "test"}) {
    if (!fs::is_directory(folder / name)) continue;
    own_split = true;
    return folder / (split == Split::Train ? "train" : name);
  }
  return folder;
}

class ImageFolder final : public ImageSource {
 public:
  ImageFolder(const fs::path& folder, Split split) {
    root_ = root_of(folder, split, own_split_);
    for (const fs::path& found : folders_in(root_)) add_class(found);
    if (files_.empty()) {
      throw DataError(
          "{}: no images: expected a folder for each class with .jpg, .jpeg or .png files, CIFAR's .bin "
          "files, or a set that tandem prepare --images wrote",
          root_.string());
    }
  }

  int64_t num_images() const override { return static_cast<int64_t>(files_.size()); }
  const std::vector<std::string>& classes() const override { return classes_; }
  int32_t label(int64_t index) const override { return file(index).label; }
  std::string name(int64_t index) const override {
    return (root_ / classes_[static_cast<size_t>(file(index).label)] / file(index).path).string();
  }
  StoredImage read(int64_t index) const override {
    constexpr int64_t kMostBytes = int64_t{1} << 30;
    const std::string text = read_text(name(index), kMostBytes);
    const auto* begin = reinterpret_cast<const std::byte*>(text.data());
    return {.bytes = {begin, begin + text.size()}};
  }
  std::string identity() const override {
    std::string all;
    for (const File& file : files_)
      all += fmt::format("{} {} {} {}\n", classes_[static_cast<size_t>(file.label)], file.path, file.bytes,
                         file.modified_ns);
    return digest_hex(std::as_bytes(std::span(all)));
  }
  bool has_own_split() const override { return own_split_; }

 private:
  struct File {
    int32_t label;
    std::string path;  // below its class's folder
    int64_t bytes, modified_ns;
  };

  const File& file(int64_t index) const { return files_[static_cast<size_t>(index)]; }

  void add_class(const fs::path& folder) {
    const auto label = static_cast<int32_t>(classes_.size());
    std::vector<File> found;
    const auto options = fs::directory_options::follow_directory_symlink;
    for (auto at = fs::recursive_directory_iterator(folder, options);
         at != fs::recursive_directory_iterator(); ++at) {
      if (is_hidden(at->path())) {
        if (at->is_directory()) at.disable_recursion_pending();
        continue;
      }
      if (!is_image(at->path()) || !at->is_regular_file()) continue;
      found.push_back({label, at->path().lexically_relative(folder).string(),
                       static_cast<int64_t>(at->file_size()),
                       static_cast<int64_t>(at->last_write_time().time_since_epoch().count())});
    }
    if (found.empty())
      throw DataError("{}: a class without images; put some there, or remove the folder", folder.string());
    std::sort(found.begin(), found.end(), [](const File& a, const File& b) { return a.path < b.path; });
    files_.insert(files_.end(), found.begin(), found.end());
    classes_.push_back(folder.filename().string());
  }

  fs::path root_;
  bool own_split_ = false;
  std::vector<std::string> classes_;
  std::vector<File> files_;
};

}  // namespace

std::unique_ptr<ImageSource> open_image_folder(const std::string& folder, Split split) {
  try {
    return std::make_unique<ImageFolder>(folder, split);
  } catch (const fs::filesystem_error& error) {
    throw IoError("{}: cannot be read: {}", error.path1().string(), error.code().message());
  }
}

}  // namespace tandem
