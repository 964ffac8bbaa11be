#include "tandem/store/s3/s3_store.h"

#include <algorithm>
#include <limits>

#include "tandem/base/error.h"

namespace tandem {
namespace {

constexpr int64_t kMostRead = int64_t{64} << 20;  // with one call
constexpr const char* kPageKeys = "1000";

// What cannot be believed of an answer is trouble of the store, not of what lies in it.
template <typename Parse>
auto believed(const std::string& address, const char* what, Parse&& parse) {
  try {
    return parse();
  } catch (const DataError& error) {
    throw IoError("{}: cannot {}: {}", address, what, error.what());
  }
}

class S3Reader final : public ObjectReader {
 public:
  S3Reader(s3::Client& client, std::string name, int64_t bytes, std::string etag)
      : client_(client), name_(std::move(name)), bytes_(bytes), etag_(std::move(etag)) {}

  int64_t size() const override { return bytes_; }
  std::string description() const override { return client_.address(name_); }
  bool is_far() const override { return true; }
  std::string version() const override { return etag_; }
  void read_at(int64_t offset, std::span<std::byte> dst) const override {
    if (offset > bytes_ || static_cast<int64_t>(dst.size()) > bytes_ - offset)
      throw DataError("{}: truncated: ends at byte {}", description(), bytes_);
    while (!dst.empty()) {
      const auto piece = dst.first(std::min(dst.size(), static_cast<size_t>(kMostRead)));
      read_piece(offset, piece);
      offset += static_cast<int64_t>(piece.size());
      dst = dst.subspan(piece.size());
    }
  }

 private:
  void read_piece(int64_t offset, std::span<std::byte> dst) const {
    const int64_t last = offset + static_cast<int64_t>(dst.size()) - 1;
    s3::Call call{"read", "GET", name_};
    call.headers["range"] = fmt::format("bytes={}-{}", offset, last);
    if (!etag_.empty()) call.headers["if-match"] = etag_;
    const s3::Answer answer = client_.call(call, {412}, dst);
    if (answer.status == 412) throw IoError("{}: was replaced while it was read", description());
    const auto range = s3::parse_content_range(answer.header("content-range"));
    const bool whole = answer.status == 200 && offset == 0 && last + 1 == bytes_;
    const bool right = range && range->first == offset && range->last == last && range->total == bytes_;
    if (!whole && !(answer.status == 206 && right)) {
      throw IoError("{}: cannot read: asked for bytes {} to {} of {}, and the answer is of others",
                    description(), offset, last, bytes_);
    }
  }

  s3::Client& client_;
  std::string name_;
  int64_t bytes_;
  std::string etag_;
};

}  // namespace

S3Store::S3Store(const std::string& address, const StorageOptions& options, s3::Environment environment,
                 s3::TimeLimits limits, s3::Retries retries, s3::PartBuffers parts)
    : client_(s3::find_place(address, options, environment), environment, limits, retries), parts_(parts) {}

std::unique_ptr<ObjectReader> S3Store::open(const std::string& name) const {
  const s3::Answer head = client_.call({"open", "HEAD", name}, {404});
  if (head.status == 404) throw MissingObject("{}: cannot open: no such object", description(name));
  const auto bytes = s3::parse_length(head.header("content-length"));
  if (!bytes) throw IoError("{}: cannot open: the answer gives no length", description(name));
  return std::make_unique<S3Reader>(client_, name, *bytes, head.header("etag"));
}

bool S3Store::exists(const std::string& name) const {
  return client_.call({"look for", "HEAD", name}, {404}).status != 404;
}

std::unique_ptr<ObjectWriter> S3Store::create(const std::string& name) {
  return std::make_unique<s3::MultipartWriter>(client_, name, parts_);
}

void S3Store::put(const std::string& name, std::string_view text) {
  s3::put_object(client_, name, std::as_bytes(std::span(text)));
}

// Whoever lost the answer to a first try finds the object there: it is one's own if it has one's own text.
bool S3Store::put_new(const std::string& name, std::string_view text) {
  const s3::Answer answer =
      s3::put_object(client_, name, std::as_bytes(std::span(text)), {{"if-none-match", "*"}}, {412});
  if (answer.status != 412) return true;
  const auto there = open(name);
  return there->size() == static_cast<int64_t>(text.size()) && read_text(*there) == text;
}

std::string S3Store::name_of(const std::string& key) const {
  const std::string& prefix = client_.place().prefix;
  if (prefix.empty()) return key;
  if (!key.starts_with(prefix + "/"))
    throw IoError("{}: cannot list: the answer has a key of another prefix", description(""));
  return key.substr(prefix.size() + 1);
}

std::vector<StoredObject> S3Store::list(const std::string& prefix) const {
  std::vector<StoredObject> objects;
  s3::Call call{"list", "GET", prefix};
  call.whole_bucket = true;
  call.query = {{"list-type", "2"},
                {"encoding-type", "url"},
                {"max-keys", kPageKeys},
                {"prefix", client_.place().key(prefix)}};
  for (std::string next;;) {
    if (!next.empty()) call.query["continuation-token"] = next;
    const s3::Answer answer = client_.call(call);
    s3::ListPage page = believed(description(prefix), "list", [&] { return s3::parse_list(answer.body); });
    for (const s3::ListedObject& object : page.objects) {
      const std::string name = name_of(object.key);
      // S3's lists are in order: one that is not goes in circles.
      if (!name.starts_with(prefix) || (!objects.empty() && name <= objects.back().name))
        throw IoError("{}: cannot list: the answer is not in order", description(prefix));
      objects.push_back({name, object.bytes, object.modified});
    }
    if (page.next.empty()) return objects;
    if (page.objects.empty())
      throw IoError("{}: cannot list: a page without objects, and more to come", description(prefix));
    next = page.next;
  }
}

void S3Store::remove(const std::string& name) { client_.call({"remove", "DELETE", name}, {404}); }

int64_t S3Store::free_bytes() const { return std::numeric_limits<int64_t>::max(); }

void S3Store::make() {
  s3::Call call{"list", "GET", ""};
  call.whole_bucket = true;
  call.query = {{"list-type", "2"}, {"max-keys", "1"}, {"prefix", client_.place().key("")}};
  if (client_.call(call, {404}).status == 404) {
    throw IoError("{}: no bucket '{}' there; make it, or name another", description(""),
                  client_.place().bucket);
  }
}

std::vector<s3::Upload> S3Store::uploads() const {
  std::vector<s3::Upload> uploads;
  s3::Call call{"list uploads", "GET", ""};
  call.whole_bucket = true;
  call.query = {{"uploads", ""}, {"encoding-type", "url"}, {"prefix", client_.place().key("")}};
  for (;;) {
    const s3::Answer answer = client_.call(call);
    s3::UploadPage page =
        believed(description(""), "list uploads", [&] { return s3::parse_uploads(answer.body); });
    for (s3::Upload& upload : page.uploads) {
      upload.key = name_of(upload.key);
      uploads.push_back(std::move(upload));
    }
    if (!page.more) return uploads;
    if (page.uploads.empty())
      throw IoError("{}: cannot list uploads: an empty page, and more to come", description(""));
    call.query["key-marker"] = page.next_key;
    call.query["upload-id-marker"] = page.next_id;
  }
}

// Named "NAME?uploadId=ID", which no object is.
std::vector<StoredObject> S3Store::unfinished() const {
  std::vector<StoredObject> found;
  for (const s3::Upload& upload : uploads())
    found.push_back({upload.key + "?uploadId=" + upload.id, 0, upload.begun});
  return found;
}

void S3Store::remove_unfinished(const StoredObject& object) {
  const size_t mark = object.name.rfind("?uploadId=");
  TANDEM_CHECK(mark != std::string::npos);
  const std::string id = object.name.substr(mark + std::string_view("?uploadId=").size());
  client_.call({"give up an upload", "DELETE", object.name.substr(0, mark), {{"uploadId", id}}}, {404});
}

void S3Store::lend_memory(std::span<std::byte> memory) {
  parts_ = memory.empty() ? s3::PartBuffers{} : s3::cut_memory(memory);
}

std::vector<std::string> S3Store::remove_leftovers(const BundleNames& ours) {
  std::vector<std::string> troubles = Store::remove_leftovers(ours);
  try {
    for (const StoredObject& object : unfinished()) {
      if (ours(object.name.substr(0, object.name.find('/')))) remove_unfinished(object);
    }
  } catch (const Error& error) {
    troubles.emplace_back(error.what());
  }
  return troubles;
}

}  // namespace tandem
