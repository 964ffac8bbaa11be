// Any bytes as a shard of tokens or, where the first byte is odd, of images: refused with one line, or read
// to its end.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/data/images/image_shard.h"
#include "tandem/data/token_shard.h"

namespace {

using namespace tandem;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

const std::filesystem::path& file_of_this_process() {
  static const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("tandem-fuzz-" + std::to_string(::getpid()) + ".shard");
  static const bool registered = std::atexit([] { std::filesystem::remove(file_of_this_process()); }) == 0;
  require(registered, "a file that is removed in the end");
  return path;
}

void write(const std::filesystem::path& path, const uint8_t* data, size_t size) {
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  require(file != nullptr && std::fwrite(data, 1, size, file) == size && std::fclose(file) == 0,
          "a file that can be written");
}

void read_tokens(const std::filesystem::path& path) {
  const TokenShard shard(path);
  const int64_t count = shard.info().num_tokens;
  std::vector<int64_t> documents;
  shard.documents(0, count, 0, documents);
  int64_t last = -1;
  for (const int64_t begin : documents) {
    require(begin > last && begin < count, "documents begin in order");
    last = begin;
  }
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  shard.read(0, count, tokens.data());
  for (const int32_t token : tokens)
    require(token >= 0 && token <= shard.info().max_token, "tokens of the vocabulary");
  shard.verify();
}

void read_images(const std::filesystem::path& path) {
  const ImageShard shard(*StoreRef(path.parent_path()), path.filename().string());
  for (int64_t i = 0; i < shard.num_images(); ++i) {
    const StoredImage image = shard.read(i);
    const auto pixels = static_cast<size_t>(image.height * image.width * image.channels);
    require(image.is_encoded() ? image.width == 0 : image.bytes.size() == pixels, "as many pixels as bytes");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::filesystem::path& path = file_of_this_process();
  write(path, data + 1, size - 1);
  try {
    (data[0] & 1) == 0 ? read_tokens(path) : read_images(path);
  } catch (const DataError& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos, "an error is one line");
  }
  return 0;
}
