#include "tandem/pipeline/remote_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "tandem/base/digest.h"
#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/system.h"
#include "tandem/config/values.h"

namespace tandem::pipeline {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPart = size_t{8} << 20;
constexpr const char* kKept = "kept";  // beside the record: the address of the store that has the step

std::string name_there(const Plan& plan, size_t step) { return plan.work[step].home.filename().string(); }

Json record_from(const std::string& text, const std::string& where) {
  std::optional<Json> record = parse_record(text);
  if (!record) throw DataError("{}: is no record of a step", where);
  return std::move(*record);
}

// Whether it stays below where it is put.
bool is_inside(const fs::path& path) {
  return !path.is_absolute() && std::none_of(path.begin(), path.end(), [](const fs::path& part) {
    return part == ".." || part == "." || part.empty();
  });
}

// All below an output, as a record has it: folders first, links last.
Json files_of(const fs::path& output) {
  Json folders = Json::array(), files = Json::array(), links = Json::array();
  const auto add = [&](const fs::path& path, const std::string& name) {
    if (fs::is_symlink(path)) {
      links.push_back({{"path", name}, {"link", fs::read_symlink(path).string()}});
    } else if (fs::is_directory(path)) {
      folders.push_back({{"path", name}, {"folder", true}});
    } else {
      require_regular(path);
      const bool runs = ::access(path.c_str(), X_OK) == 0;
      files.push_back({{"path", name},
                       {"bytes", static_cast<int64_t>(fs::file_size(path))},
                       {"digest", digest_hex(MappedFile(path).bytes())},
                       {"runs", runs}});
    }
  };
  add(output, output.filename().string());
  if (fs::is_directory(output) && !fs::is_symlink(output)) {
    std::vector<fs::path> entries;
    for (const auto& entry : fs::recursive_directory_iterator(output)) entries.push_back(entry.path());
    std::sort(entries.begin(), entries.end());
    for (const fs::path& entry : entries)
      add(entry, (output.filename() / entry.lexically_relative(output)).string());
  }
  for (Json* part : {&files, &links}) folders.insert(folders.end(), part->begin(), part->end());
  return folders;
}

void upload(Store& store, const std::string& name, const fs::path& file) {
  const MappedFile mapped(file);
  const std::unique_ptr<ObjectWriter> writer = store.create(name);
  for (size_t at = 0; at < mapped.bytes().size(); at += kPart)
    writer->write_all(mapped.bytes().subspan(at, std::min(kPart, mapped.bytes().size() - at)));
  writer->finish();
}

void download(const Store& store, const std::string& name, const fs::path& file, const Json& entry) {
  const std::unique_ptr<ObjectReader> reader = store.open(name);
  OutputFile out(file);
  std::vector<std::byte> part;
  for (int64_t at = 0; at < reader->size(); at += static_cast<int64_t>(part.size())) {
    part.resize(static_cast<size_t>(std::min<int64_t>(kPart, reader->size() - at)));
    reader->read_at(at, part);
    out.write_all(part);
  }
  out.sync_and_close();
  if (digest_hex(MappedFile(file).bytes()) != entry.value("digest", ""))
    throw DataError("{}: is not what its record says", store.description(name));
  if (entry.value("runs", false)) ::chmod(file.c_str(), 0755);
}

// The record as it is here: without what is of the store alone.
Json local_part(Json record) {
  record.erase("files");
  record.erase("token");
  return record;
}

}  // namespace

RemoteStore::RemoteStore(const std::string& address) : address_(address), store_(open_store(address)) {
  store_->make();
}

std::optional<Json> RemoteStore::record(const Plan& plan, size_t step) const {
  const std::string name = name_there(plan, step) + "/" + kRecord;
  try {
    const Json found = record_from(read_text(*store_->open(name)), store_->description(name));
    if (found.value("key", "") != plan.work[step].key)
      throw DataError("{}: is of another key than its name says", store_->description(name));
    return found;
  } catch (const MissingObject&) {
    return std::nullopt;
  }
}

void RemoteStore::keep(const Plan& plan, size_t step) {
  const fs::path home = plan.home(step), marker = home / kKept;
  if (is_there(marker) && read_text(marker) == address_ + "\n") return;
  Json made = record_from(read_text(home / kRecord), (home / kRecord).string());
  std::optional<Json> there = record(plan, step);
  const std::string name = name_there(plan, step);
  if (!there) {
    const std::string token =
        digest_of(fmt::format("{} {} {}", hostname(), ::getpid(), utc_time())).substr(0, 16);
    const std::string place = name + "/" + token + "/";
    Json whole = made;
    whole["token"] = token;
    whole["files"] =
        plan.work[step].output.empty() ? Json::array() : files_of(plan.folder() / plan.work[step].output);
    for (const Json& entry : whole["files"]) {
      if (entry.contains("digest"))
        upload(*store_, place + entry["path"].get<std::string>(),
               home / fs::path(entry["path"].get<std::string>()));
    }
    if (is_there(home / kLog)) upload(*store_, place + kLog, home / kLog);
    const std::string text = whole.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
    if (!store_->put_new(name + "/" + kRecord, text)) {
      for (const StoredObject& object : store_->list(place)) store_->remove(object.name);
      there = record(plan, step);
    }
  }
  if (there && local_part(*there) != made) {
    std::fprintf(stderr, "%s: was made elsewhere at the same time; that one counts\n",
                 plan.graph.steps[step].name.c_str());
    fetch(plan, step, *there);
  }
  write_atomically(marker, address_ + "\n");
}

void RemoteStore::fetch(const Plan& plan, size_t step, const Json& record) {
  const fs::path home = plan.home(step), aside = home / ".fetched";
  const std::string place = name_there(plan, step) + "/" + record.value("token", "") + "/";
  fs::create_directories(home);
  fs::remove(home / kRecord);
  fs::remove_all(aside);
  fs::create_directories(aside);
  for (const Json& entry : record.value("files", Json::array())) {
    const std::string path = entry.value("path", "");
    if (!is_inside(path)) throw DataError("{}: names a file {}", store_->description(place), in_quotes(path));
    if (entry.contains("link")) {
      fs::create_symlink(entry.value("link", ""), aside / path);
    } else if (entry.contains("folder")) {
      fs::create_directories(aside / path);
    } else {
      download(*store_, place + path, aside / path, entry);
    }
  }
  if (!plan.work[step].output.empty()) {
    const fs::path output = plan.folder() / plan.work[step].output;
    fs::remove_all(output);
    if (!fs::exists(fs::symlink_status(aside / output.filename())))
      throw DataError("{}: its record names no {}", store_->description(place), output.filename().string());
    fs::rename(aside / output.filename(), output);
  }
  fs::remove_all(aside);
  write_atomically(home / kKept, address_ + "\n");
  write_atomically(home / kRecord,
                   local_part(record).dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace tandem::pipeline
