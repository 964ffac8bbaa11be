#include "tandem/data/prepare/unpack.h"

#include <fcntl.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>

#include "tandem/base/descriptor.h"
#include "tandem/base/error.h"
#include "tandem/base/file.h"

namespace tandem {
namespace {

constexpr size_t kPackedAtOnce = size_t{128} << 10;

class PlainStream final : public InputStream {
 public:
  explicit PlainStream(const InputFile& file) : path_(file.path), file_(open_regular(file.path, O_RDONLY)) {}

  size_t read(char* out, size_t most) override {
    const ssize_t count = ::read(file_.get(), out, most);
    if (count < 0) throw IoError("{}: cannot be read: {}", path_.string(), std::strerror(errno));
    consumed_ += count;
    return static_cast<size_t>(count);
  }
  int64_t consumed() const override { return consumed_; }
  void skip(int64_t bytes) override {
    if (::lseek(file_.get(), bytes, SEEK_CUR) < 0) throw IoError("{}: cannot be read", path_.string());
    consumed_ += bytes;
  }

 private:
  std::filesystem::path path_;
  Descriptor file_;
  int64_t consumed_ = 0;
};

// What both kinds of packed files share: the packed bytes at hand.
class PackedStream : public InputStream {
 public:
  explicit PackedStream(const InputFile& file) : path_(file.path.string()), plain_(file) {}
  int64_t consumed() const override { return plain_.consumed() - static_cast<int64_t>(size_ - at_); }

 protected:
  bool refill() {  // false at the end of the file
    at_ = 0;
    size_ = plain_.read(packed_, sizeof(packed_));
    return size_ > 0;
  }
  [[noreturn]] void fail(std::string_view what) const {
    throw DataError("{}: {} after {} bytes of it; fetch or pack it again", path_, what, consumed());
  }

  std::string path_;
  PlainStream plain_;
  char packed_[kPackedAtOnce];
  size_t at_ = 0, size_ = 0;
};

class GzipStream final : public PackedStream {
 public:
  explicit GzipStream(const InputFile& file) : PackedStream(file) {
    if (::inflateInit2(&state_, 15 + 16) != Z_OK) throw IoError("{}: zlib does not start", path_);
  }
  ~GzipStream() override { ::inflateEnd(&state_); }

  size_t read(char* out, size_t most) override {
    state_.next_out = reinterpret_cast<Bytef*>(out);
    state_.avail_out = static_cast<uInt>(std::min(most, size_t{1} << 30));
    const uInt wanted = state_.avail_out;
    while (state_.avail_out == wanted) {
      if (at_ == size_ && !refill()) {
        if (within_) fail("gzip-compressed, but cut off");
        return 0;
      }
      // Members may follow each other; what gzip itself passes over behind the last one is zeros.
      if (!within_ && packed_[at_] == 0) {
        ++at_;
        continue;
      }
      within_ = true;
      state_.next_in = reinterpret_cast<Bytef*>(packed_ + at_);
      state_.avail_in = static_cast<uInt>(size_ - at_);
      const int result = ::inflate(&state_, Z_NO_FLUSH);
      at_ = size_ - state_.avail_in;
      if (result == Z_STREAM_END) {
        within_ = false;
        ::inflateReset(&state_);
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        fail("gzip-compressed, but damaged");
      }
    }
    return wanted - state_.avail_out;
  }

 private:
  z_stream state_{};
  bool within_ = false;  // a member
};

class ZstdStream final : public PackedStream {
 public:
  explicit ZstdStream(const InputFile& file) : PackedStream(file), state_(::ZSTD_createDStream()) {
    if (!state_) throw IoError("{}: zstd does not start", path_);
    ::ZSTD_DCtx_setParameter(state_.get(), ZSTD_d_windowLogMax, 31);  // as far as `zstd --long=31` goes
  }

  size_t read(char* out, size_t most) override {
    ZSTD_outBuffer to{out, most, 0};
    while (to.pos == 0) {
      if (at_ == size_ && !full_ && !refill()) {
        if (within_) fail("zstd-compressed, but cut off");
        return 0;
      }
      ZSTD_inBuffer from{packed_, size_, at_};
      const size_t result = ::ZSTD_decompressStream(state_.get(), &to, &from);
      at_ = from.pos;
      if (::ZSTD_isError(result)) fail("zstd-compressed, but damaged");
      within_ = result != 0;
      full_ = within_ && to.pos == to.size;  // there may be more without further bytes of the file
    }
    return to.pos;
  }

 private:
  struct Free {
    void operator()(ZSTD_DStream* stream) const { ::ZSTD_freeDStream(stream); }
  };
  std::unique_ptr<ZSTD_DStream, Free> state_;
  bool within_ = false, full_ = false;
};

}  // namespace

void InputStream::skip(int64_t bytes) {
  std::vector<char> passed(size_t{1} << 18);
  while (bytes > 0) {
    const size_t count = read(passed.data(), std::min(passed.size(), static_cast<size_t>(bytes)));
    if (count == 0) return;
    bytes -= static_cast<int64_t>(count);
  }
}

std::unique_ptr<InputStream> open_input(const InputFile& file) {
  if (file.packing == Packing::Gzip) return std::make_unique<GzipStream>(file);
  if (file.packing == Packing::Zstd) return std::make_unique<ZstdStream>(file);
  return std::make_unique<PlainStream>(file);
}

}  // namespace tandem
