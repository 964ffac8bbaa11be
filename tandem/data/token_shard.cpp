#include "tandem/data/token_shard.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>

#include "tandem/base/digest.h"
#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/store/cache/read_ahead.h"

namespace tandem {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are read and written in place");

constexpr uint32_t kVersion = 2, kOldest = 1;
constexpr char kMagic[] = "TNDMTOKS";

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t token_bytes;
  uint64_t vocab;
  uint64_t num_tokens;
  uint64_t max_token;
  char digest[32];
  uint64_t num_documents;
  char tokenizer[32];
  char zeros[16];
};
static_assert(sizeof(Header) == 128);

constexpr uint64_t padded(uint64_t bytes) { return (bytes + 7) / 8 * 8; }

// All that stands behind the header.
template <typename Token>
std::vector<std::byte> body_of(std::span<const int32_t> tokens, std::span<const int64_t> documents) {
  const size_t table = padded(tokens.size() * sizeof(Token));
  std::vector<std::byte> body(documents.empty() ? tokens.size() * sizeof(Token)
                                                : table + documents.size_bytes());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto token = static_cast<Token>(tokens[i]);
    std::memcpy(body.data() + i * sizeof(Token), &token, sizeof(Token));
  }
  if (!documents.empty()) std::memcpy(body.data() + table, documents.data(), documents.size_bytes());
  return body;
}

template <typename Token>
int64_t widen(const std::byte* from, int64_t count, int32_t* out) {  // returns the largest
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    Token token;
    std::memcpy(&token, from + i * static_cast<int64_t>(sizeof(Token)), sizeof(Token));
    largest = std::max<uint32_t>(largest, token);
    out[i] = static_cast<int32_t>(token);
  }
  return largest;
}

std::unique_ptr<ObjectBytes> open_shard(const Store& store, const std::string& name) {
  if (!store.exists(name))
    throw DataError("{}: shard is missing; run tandem prepare again", store.description(name));
  return store.map(name);
}

}  // namespace

ShardInfo write_shard(const std::filesystem::path& path, std::span<const int32_t> tokens, int64_t vocab,
                      std::span<const int64_t> documents, std::string_view tokenizer) {
  ShardInfo info{.token_bytes = shard_token_bytes(vocab),
                 .vocab = vocab,
                 .num_tokens = static_cast<int64_t>(tokens.size()),
                 .num_documents = static_cast<int64_t>(documents.size()),
                 .tokenizer = std::string(tokenizer)};
  for (const int32_t token : tokens) {
    TANDEM_CHECK(token >= 0 && token < vocab, "token {} of a vocabulary of {}", token, vocab);
    info.max_token = std::max<int64_t>(info.max_token, token);
  }
  const std::vector<std::byte> body =
      info.token_bytes == 2 ? body_of<uint16_t>(tokens, documents) : body_of<uint32_t>(tokens, documents);
  info.digest = digest_hex(body);
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(header.magic));
  header.version = kVersion;
  header.token_bytes = static_cast<uint32_t>(info.token_bytes);
  header.vocab = static_cast<uint64_t>(info.vocab);
  header.num_tokens = static_cast<uint64_t>(info.num_tokens);
  header.max_token = static_cast<uint64_t>(info.max_token);
  std::memcpy(header.digest, info.digest.data(), sizeof(header.digest));
  header.num_documents = static_cast<uint64_t>(info.num_documents);
  TANDEM_CHECK(tokenizer.empty() || tokenizer.size() == sizeof(header.tokenizer));
  std::copy(tokenizer.begin(), tokenizer.end(), header.tokenizer);
  OutputFile file(path);
  file.write_all(std::as_bytes(std::span(&header, 1)));
  file.write_all(body);
  file.sync_and_close();
  return info;
}

TokenShard::TokenShard(const std::filesystem::path& path)
    : TokenShard(*StoreRef(path.parent_path()), path.filename().string()) {}

struct TokenShard::Far {
  std::unique_ptr<CachedObject> object;
  std::once_flag once;
  std::vector<int64_t> documents;  // where they begin: all of it, at the first question
};

TokenShard::TokenShard(const Store& store, const std::string& name)
    : origin_(store.description(name)), object_(open_shard(store, name)) {
  const auto bytes = object_->bytes();
  read_header(bytes.first(std::min(bytes.size(), sizeof(Header))), static_cast<int64_t>(bytes.size()));
}

TokenShard::TokenShard(std::unique_ptr<CachedObject> far)
    : origin_(far->description()), far_(std::make_unique<Far>()) {
  far_->object = std::move(far);
  const int64_t bytes = far_->object->size();
  std::vector<std::byte> header(std::min(static_cast<size_t>(bytes), sizeof(Header)));
  far_->object->read_at(0, header);
  read_header(header, bytes);
}

TokenShard::~TokenShard() = default;
TokenShard::TokenShard(TokenShard&& other) noexcept = default;

void TokenShard::read_header(std::span<const std::byte> first, int64_t size) {
  const auto bytes = static_cast<uint64_t>(size);
  Header header{};
  if (first.size() < sizeof(header)) {
    throw DataError("{}: truncated: expected at least {} bytes, found {}; run tandem prepare again", origin_,
                    sizeof(header), bytes);
  }
  std::memcpy(&header, first.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(header.magic)) != 0) {
    throw DataError("{}: not a token shard: expected it to begin with {}", origin_, kMagic);
  }
  if (header.version < kOldest || header.version > kVersion) {
    throw DataError("{}: expected shard version {} or {}, found {}; run tandem prepare again", origin_,
                    kOldest, kVersion, header.version);
  }
  const bool sane =
      (header.token_bytes == 2 || header.token_bytes == 4) && header.num_tokens < (uint64_t{1} << 56) &&
      header.vocab > 0 && header.vocab <= (uint64_t{1} << 31) && header.max_token < header.vocab &&
      header.num_documents <= header.num_tokens && (header.version > 1 || header.num_documents == 0);
  if (!sane) throw DataError("{}: header is damaged; run tandem prepare again", origin_);
  const uint64_t token_bytes = header.num_tokens * header.token_bytes;
  const uint64_t expected =
      sizeof(header) +
      (header.num_documents > 0 ? padded(token_bytes) + 8 * header.num_documents : token_bytes);
  if (bytes != expected) {
    throw DataError("{}: {}: expected {} bytes, found {}; run tandem prepare again", origin_,
                    bytes < expected ? "truncated" : "too long", expected, bytes);
  }
  info_ = {.token_bytes = header.token_bytes,
           .vocab = static_cast<int64_t>(header.vocab),
           .num_tokens = static_cast<int64_t>(header.num_tokens),
           .max_token = static_cast<int64_t>(header.max_token),
           .digest = std::string(header.digest, sizeof(header.digest)),
           .num_documents = static_cast<int64_t>(header.num_documents),
           .tokenizer = std::string(header.tokenizer, sizeof(header.tokenizer))};
  if (info_.tokenizer.find_first_not_of('\0') == std::string::npos) info_.tokenizer.clear();
}

int64_t TokenShard::payload_bytes() const {
  const int64_t all = far_ ? far_->object->size() : static_cast<int64_t>(object_->bytes().size());
  return all - static_cast<int64_t>(sizeof(Header));
}

std::span<const std::byte> TokenShard::payload(int64_t offset, int64_t bytes) const {
  const auto at = sizeof(Header) + static_cast<size_t>(offset), count = static_cast<size_t>(bytes);
  if (!far_) return object_->bytes().subspan(at, count);
  thread_local std::vector<std::byte> fetched;
  fetched.resize(std::max(fetched.size(), count));
  far_->object->read_at(static_cast<int64_t>(at), std::span(fetched).first(count));
  return std::span(fetched).first(count);
}

void TokenShard::expect(int64_t first, int64_t count) const {
  if (!far_) return;
  far_->object->expect(static_cast<int64_t>(sizeof(Header)) + first * info_.token_bytes,
                       count * info_.token_bytes);
}

void TokenShard::verify() const {
  const std::string found = digest_hex(payload(0, payload_bytes()));
  if (found != info_.digest) {
    throw DataError("{}: tokens are damaged: expected digest {}, found {}; run tandem prepare again", origin_,
                    info_.digest, found);
  }
}

void TokenShard::read(int64_t first, int64_t count, int32_t* out) const {
  TANDEM_CHECK(first >= 0 && count >= 0 && first + count <= info_.num_tokens);
  const std::byte* from = payload(first * info_.token_bytes, count * info_.token_bytes).data();
  const int64_t largest =
      info_.token_bytes == 2 ? widen<uint16_t>(from, count, out) : widen<uint32_t>(from, count, out);
  if (largest > info_.max_token) {
    throw DataError(
        "{}: tokens are damaged: found token {} near position {}, the largest should be {}; "
        "run tandem prepare again",
        origin_, largest, first, info_.max_token);
  }
}

int64_t TokenShard::document(int64_t number) const {
  const auto table =
      static_cast<int64_t>(padded(static_cast<uint64_t>(info_.num_tokens * info_.token_bytes)));
  if (far_) {
    std::call_once(far_->once, [&] {
      std::vector<int64_t> documents(static_cast<size_t>(info_.num_documents));
      far_->object->read_at(static_cast<int64_t>(sizeof(Header)) + table,
                            std::as_writable_bytes(std::span(documents)));
      far_->documents = std::move(documents);
    });
    return far_->documents[static_cast<size_t>(number)];
  }
  int64_t first = 0;
  std::memcpy(&first, payload(table + number * 8, 8).data(), 8);
  return first;
}

void TokenShard::documents(int64_t first, int64_t count, int64_t base, std::vector<int64_t>& out) const {
  int64_t low = 0, high = info_.num_documents;  // the first document that begins at `first` or behind it
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (document(middle) < first) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  int64_t last = first - 1;
  for (; low < info_.num_documents && document(low) < first + count; ++low) {
    if (document(low) <= last) {
      throw DataError("{}: its table of documents is damaged: {} comes after {}; run tandem prepare again",
                      origin_, document(low), last);
    }
    last = document(low);
    out.push_back(base + last);
  }
}

}  // namespace tandem
