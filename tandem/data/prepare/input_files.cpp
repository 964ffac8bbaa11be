#include "tandem/data/prepare/input_files.h"

#include <fcntl.h>
#include <glob.h>

#include <algorithm>

#include "tandem/base/descriptor.h"
#include "tandem/base/error.h"
#include "tandem/base/file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using namespace std::string_view_literals;

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

std::string first_bytes(const fs::path& path) {
  const Descriptor file(open_regular(path, O_RDONLY));
  char bytes[4];
  const ssize_t count = ::read(file.get(), bytes, sizeof(bytes));
  if (count < 0) throw IoError("{}: cannot be read", path.string());
  return {bytes, static_cast<size_t>(count)};
}

InputFile look_at(const fs::path& path) {
  InputFile file{.path = path};
  file.bytes = static_cast<int64_t>(fs::file_size(path));
  file.modified_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(fs::last_write_time(path).time_since_epoch())
          .count();
  const std::string begin = first_bytes(path);
  if (begin.starts_with("\x1f\x8b"sv)) file.packing = Packing::Gzip;
  if (begin.starts_with("\x28\xb5\x2f\xfd"sv)) file.packing = Packing::Zstd;
  fs::path name = path.filename();
  if (file.packing != Packing::None && (name.extension() == ".gz" || name.extension() == ".zst"))
    name = name.stem();
  const fs::path extension = name.extension();
  if (extension == ".jsonl" || extension == ".ndjson" || extension == ".json")
    file.format = InputFormat::JsonLines;
  return file;
}

void add_directory(const fs::path& directory, std::vector<InputFile>& out) {
  std::vector<fs::path> found;
  for (auto entry = fs::recursive_directory_iterator(directory); entry != fs::recursive_directory_iterator();
       ++entry) {
    if (is_hidden(entry->path())) {
      if (entry->is_directory()) entry.disable_recursion_pending();
      continue;
    }
    if (entry->is_regular_file() && entry->file_size() > 0) found.push_back(entry->path());
  }
  if (found.empty()) throw DataError("{}: no files in it: expected text or JSON Lines", directory.string());
  std::sort(found.begin(), found.end());
  for (const fs::path& path : found) out.push_back(look_at(path));
}

void add_one(const fs::path& path, std::vector<InputFile>& out) {
  if (!is_there(path)) throw DataError("{}: no such file", path.string());
  if (fs::is_directory(path)) return add_directory(path, out);
  if (!fs::is_regular_file(path)) throw DataError("{}: not a file: expected text", path.string());
  if (fs::file_size(path) == 0) throw DataError("{}: file is empty: expected text", path.string());
  out.push_back(look_at(path));
}

void add_pattern(const std::string& pattern, std::vector<InputFile>& out) {
  glob_t found{};
  const int error = ::glob(pattern.c_str(), 0, nullptr, &found);  // sorts them
  std::vector<std::string> paths;
  if (error == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (paths.empty()) throw DataError("{}: no file matches it", pattern);
  for (const std::string& path : paths) add_one(path, out);
}

}  // namespace

std::vector<InputFile> find_inputs(std::span<const std::string> names) {
  if (names.empty()) throw ConfigError("prepare: no input files: name at least one");
  std::vector<InputFile> files;
  for (const std::string& name : names) {
    if (!is_there(name) && name.find_first_of("*?[") != std::string::npos) {
      add_pattern(name, files);
    } else {
      add_one(name, files);
    }
  }
  return files;
}

}  // namespace tandem
