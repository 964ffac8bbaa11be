#include "tandem/data/token_shard.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tandem/base/digest.h"
#include "tandem/base/error.h"
#include "tandem/base/file.h"

namespace tandem {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are read and written in place");

constexpr uint32_t kVersion = 1;
constexpr char kMagic[] = "TNDMTOKS";

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t token_bytes;
  uint64_t vocab;
  uint64_t num_tokens;
  uint64_t max_token;
  char digest[32];
  char zeros[56];
};
static_assert(sizeof(Header) == 128);

template <typename Token>
std::vector<Token> narrowed(std::span<const int32_t> tokens) {
  std::vector<Token> out(tokens.size());
  std::transform(tokens.begin(), tokens.end(), out.begin(),
                 [](int32_t token) { return static_cast<Token>(token); });
  return out;
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

ShardInfo write_shard(const std::filesystem::path& path, std::span<const int32_t> tokens, int64_t vocab) {
  ShardInfo info{.token_bytes = shard_token_bytes(vocab),
                 .vocab = vocab,
                 .num_tokens = static_cast<int64_t>(tokens.size())};
  for (const int32_t token : tokens) {
    TANDEM_CHECK(token >= 0 && token < vocab, "token {} of a vocabulary of {}", token, vocab);
    info.max_token = std::max<int64_t>(info.max_token, token);
  }
  const auto write = [&](const auto& stored) {
    const auto bytes = std::as_bytes(std::span(stored));
    info.digest = digest_hex(bytes);
    Header header{};
    std::memcpy(header.magic, kMagic, sizeof(header.magic));
    header.version = kVersion;
    header.token_bytes = static_cast<uint32_t>(info.token_bytes);
    header.vocab = static_cast<uint64_t>(info.vocab);
    header.num_tokens = static_cast<uint64_t>(info.num_tokens);
    header.max_token = static_cast<uint64_t>(info.max_token);
    std::memcpy(header.digest, info.digest.data(), sizeof(header.digest));
    OutputFile file(path);
    file.write_all(std::as_bytes(std::span(&header, 1)));
    file.write_all(bytes);
    file.sync_and_close();
  };
  if (info.token_bytes == 2) {
    write(narrowed<uint16_t>(tokens));
  } else {
    write(narrowed<uint32_t>(tokens));
  }
  return info;
}

TokenShard::TokenShard(const std::filesystem::path& path)
    : TokenShard(*StoreRef(path.parent_path()), path.filename().string()) {}

TokenShard::TokenShard(const Store& store, const std::string& name)
    : origin_(store.description(name)), object_(open_shard(store, name)) {
  const auto bytes = object_->bytes();
  Header header{};
  if (bytes.size() < sizeof(header)) {
    throw DataError("{}: truncated: expected at least {} bytes, found {}; run tandem prepare again", origin_,
                    sizeof(header), bytes.size());
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(header.magic)) != 0) {
    throw DataError("{}: not a token shard: expected it to begin with {}", origin_, kMagic);
  }
  if (header.version != kVersion) {
    throw DataError("{}: expected shard version {}, found {}; run tandem prepare again", origin_, kVersion,
                    header.version);
  }
  const bool sane = (header.token_bytes == 2 || header.token_bytes == 4) &&
                    header.num_tokens < (uint64_t{1} << 56) && header.vocab > 0 &&
                    header.vocab <= (uint64_t{1} << 31) && header.max_token < header.vocab;
  if (!sane) throw DataError("{}: header is damaged; run tandem prepare again", origin_);
  const uint64_t expected = sizeof(header) + header.num_tokens * header.token_bytes;
  if (bytes.size() != expected) {
    throw DataError("{}: {}: expected {} bytes, found {}; run tandem prepare again", origin_,
                    bytes.size() < expected ? "truncated" : "too long", expected, bytes.size());
  }
  info_ = {.token_bytes = header.token_bytes,
           .vocab = static_cast<int64_t>(header.vocab),
           .num_tokens = static_cast<int64_t>(header.num_tokens),
           .max_token = static_cast<int64_t>(header.max_token),
           .digest = std::string(header.digest, sizeof(header.digest))};
}

std::span<const std::byte> TokenShard::payload() const { return object_->bytes().subspan(sizeof(Header)); }

void TokenShard::verify() const {
  const std::string found = digest_hex(payload());
  if (found != info_.digest) {
    throw DataError("{}: tokens are damaged: expected digest {}, found {}; run tandem prepare again", origin_,
                    info_.digest, found);
  }
}

void TokenShard::read(int64_t first, int64_t count, int32_t* out) const {
  TANDEM_CHECK(first >= 0 && count >= 0 && first + count <= info_.num_tokens);
  const std::byte* from = payload().data() + first * info_.token_bytes;
  const int64_t largest =
      info_.token_bytes == 2 ? widen<uint16_t>(from, count, out) : widen<uint32_t>(from, count, out);
  if (largest > info_.max_token) {
    throw DataError(
        "{}: tokens are damaged: found token {} near position {}, the largest should be {}; "
        "run tandem prepare again",
        origin_, largest, first, info_.max_token);
  }
}

}  // namespace tandem
