#include "tandem/pipeline/digests.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <vector>

#include "tandem/base/digest.h"
#include "tandem/base/error.h"
#include "tandem/base/file.h"

namespace tandem::pipeline {
namespace {

namespace fs = std::filesystem;
using PlainJson = nlohmann::json;

// A file that was written this shortly before it was read may be written again at what the clock of the file
// system calls the same time: it is read anew the next time.
constexpr int64_t kTooNewNs = 2'000'000'000;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Whether a link leads to a directory that it is in.
bool leads_back(const fs::path& link, const std::vector<fs::path>& within) {
  const fs::path target = fs::canonical(link), home = fs::canonical(link.parent_path());
  const auto is_around = [&](const fs::path& place) {
    return std::mismatch(target.begin(), target.end(), place.begin(), place.end()).first == target.end();
  };
  return is_around(home) || std::any_of(within.begin(), within.end(), is_around);
}

}  // namespace

std::string digest_of(std::string_view text) {
  return digest_hex(std::as_bytes(std::span(text.data(), text.size())));
}

Digests::Digests(fs::path file) : file_(std::move(file)) {
  if (!is_there(file_)) return;
  const PlainJson kept = PlainJson::parse(read_text(file_), nullptr, false);
  if (!kept.is_object()) return;
  for (const auto& [path, entry] : kept.items()) {
    if (!entry.is_array() || entry.size() != 4 || !entry[0].is_number_integer() ||
        !entry[1].is_number_integer() || !entry[2].is_number_integer() || !entry[3].is_string())
      continue;
    known_[path] = {entry[0].get<int64_t>(), entry[1].get<int64_t>(), entry[2].get<uint64_t>(),
                    entry[3].get<std::string>()};
  }
}

std::string Digests::of_file(const fs::path& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) throw IoError("{}: cannot be read", path.string());
  const int64_t changed = int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec;
  const std::string name = fs::absolute(path).lexically_normal().string();
  const auto found = known_.find(name);
  if (found != known_.end() && found->second.bytes == facts.st_size && found->second.changed_ns == changed &&
      found->second.inode == facts.st_ino)
    return found->second.digest;
  const int64_t begin = now_ns();
  require_regular(path);
  const MappedFile mapped(path);
  Known known{facts.st_size, changed, facts.st_ino, digest_hex(mapped.bytes())};
  if (begin - changed > kTooNewNs) {
    known_[name] = known;
    is_new_ = true;
  }
  return known.digest;
}

std::string Digests::of(const fs::path& path) {
  std::vector<fs::path> within;
  return fs::is_directory(path) ? of_directory(path, within) : of_file(path);
}

std::string Digests::of_directory(const fs::path& path, std::vector<fs::path>& within) {
  within.push_back(fs::canonical(path));
  std::vector<fs::path> entries;
  for (const auto& entry : fs::recursive_directory_iterator(path)) entries.push_back(entry.path());
  std::sort(entries.begin(), entries.end());
  std::string all;
  for (const fs::path& entry : entries) {
    const std::string name = entry.lexically_relative(path).string();
    std::string what;
    if (fs::is_symlink(entry) && !fs::is_regular_file(entry)) {
      what = "link " + fs::read_symlink(entry).string();
      if (fs::is_directory(entry) && !leads_back(entry, within)) what += " " + of_directory(entry, within);
    } else if (fs::is_directory(entry)) {
      what = "directory";
    } else {
      what = of_file(entry);
    }
    all += name + '\0' + what + '\0';
  }
  within.pop_back();
  return digest_of("directory\0" + all);
}

void Digests::save() {
  if (!is_new_) return;
  PlainJson kept = PlainJson::object();
  for (const auto& [path, known] : known_)
    kept[path] = {known.bytes, known.changed_ns, known.inode, known.digest};
  write_atomically(file_, kept.dump(-1, ' ', false, PlainJson::error_handler_t::replace));
  is_new_ = false;
}

}  // namespace tandem::pipeline
