#include "tandem/hub/gguf_file.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/hub/hub_dtype.h"

namespace tandem::hub {
namespace {

enum ValueType : uint32_t { kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9 };

constexpr int64_t kAlignment = 32, kBlock = 32, kBlockBytes = 34, kChunkElems = 1 << 22;
constexpr uint32_t kVersion = 3;

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void put_text(std::string& out, std::string_view text) {
  put(out, static_cast<uint64_t>(text.size()));
  out += text;
}

int64_t padding(int64_t bytes) { return (kAlignment - bytes % kAlignment) % kAlignment; }

void quantize_block(const float* src, std::byte* dst) {
  float largest = 0;
  for (int64_t i = 0; i < kBlock; ++i) largest = std::max(largest, std::fabs(src[i]));
  const float scale = largest / 127;
  const float inverse = scale == 0 ? 0 : 1 / scale;
  const Half stored = to_half(scale);
  std::memcpy(dst, &stored, sizeof(stored));
  for (int64_t i = 0; i < kBlock; ++i)
    dst[2 + i] = static_cast<std::byte>(static_cast<int8_t>(std::round(src[i] * inverse)));
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace

int64_t gguf_bytes(GgufType type, int64_t elems) {
  switch (type) {
    case GgufType::F32: return elems * 4;
    case GgufType::F16:
    case GgufType::BF16: return elems * 2;
    case GgufType::Q8_0: return elems / kBlock * kBlockBytes;
  }
  return 0;
}

void to_gguf(std::span<const float> src, GgufType type, std::byte* dst) {
  switch (type) {
    case GgufType::F32: return from_floats(src, DType::F32, dst);
    case GgufType::F16: return from_floats(src, DType::F16, dst);
    case GgufType::BF16: return from_floats(src, DType::BF16, dst);
    case GgufType::Q8_0:
      TANDEM_CHECK(src.size() % kBlock == 0);
      for (size_t i = 0; i < src.size(); i += kBlock)
        quantize_block(src.data() + i, dst + i / kBlock * kBlockBytes);
  }
}

void GgufWriter::begin(std::string_view key, uint32_t type) {
  put_text(keys_, key);
  put(keys_, type);
  ++num_keys_;
}

void GgufWriter::add(std::string_view key, uint32_t value) {
  begin(key, kUint32);
  put(keys_, value);
}

void GgufWriter::add(std::string_view key, float value) {
  begin(key, kFloat32);
  put(keys_, value);
}

void GgufWriter::add(std::string_view key, bool value) {
  begin(key, kBool);
  put(keys_, static_cast<uint8_t>(value));
}

void GgufWriter::add(std::string_view key, std::string_view value) {
  begin(key, kString);
  put_text(keys_, value);
}

void GgufWriter::add(std::string_view key, const std::vector<std::string>& values) {
  begin(key, kArray);
  put(keys_, static_cast<uint32_t>(kString));
  put(keys_, static_cast<uint64_t>(values.size()));
  for (const std::string& value : values) put_text(keys_, value);
}

void GgufWriter::add(std::string_view key, const std::vector<float>& values) {
  begin(key, kArray);
  put(keys_, static_cast<uint32_t>(kFloat32));
  put(keys_, static_cast<uint64_t>(values.size()));
  for (float value : values) put(keys_, value);
}

void GgufWriter::add(std::string_view key, const std::vector<int32_t>& values) {
  begin(key, kArray);
  put(keys_, static_cast<uint32_t>(kInt32));
  put(keys_, static_cast<uint64_t>(values.size()));
  for (int32_t value : values) put(keys_, value);
}

void GgufWriter::write(const std::filesystem::path& file, const std::vector<GgufTensor>& tensors,
                       const GiveRows& give, const std::function<void(int64_t)>& told) const {
  std::string head = "GGUF";
  put(head, kVersion);
  put(head, static_cast<uint64_t>(tensors.size()));
  put(head, num_keys_);
  head += keys_;
  int64_t at = 0;
  for (const GgufTensor& tensor : tensors) {
    put_text(head, tensor.name);
    put(head, static_cast<uint32_t>(tensor.shape.rank()));
    for (int dim = tensor.shape.rank() - 1; dim >= 0; --dim)
      put(head, static_cast<uint64_t>(tensor.shape[dim]));
    put(head, static_cast<uint32_t>(tensor.type));
    put(head, static_cast<uint64_t>(at));
    at += tensor.bytes() + padding(tensor.bytes());
  }
  head.append(static_cast<size_t>(padding(static_cast<int64_t>(head.size()))), '\0');

  std::filesystem::path draft = file;
  draft += fmt::format(".partial-{}", ::getpid());
  try {
    OutputFile out(draft);
    out.write_all(bytes_of(head));
    int64_t done = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const GgufTensor& tensor = tensors[i];
      const Box all = whole_box(tensor.shape);
      // Rows of one number are blocks together, not each by itself.
      const int64_t step =
          tensor.shape.rank() == 1 ? all.rows() : std::max<int64_t>(1, kChunkElems / all.cols());
      for (int64_t row = 0; row < all.row_end; row += step) {
        const Box rows{row, std::min(all.row_end, row + step), 0, all.col_end};
        std::vector<float> values(static_cast<size_t>(rows.elems()));
        give(i, rows, values);
        std::vector<std::byte> bytes(static_cast<size_t>(gguf_bytes(tensor.type, rows.elems())));
        to_gguf(values, tensor.type, bytes.data());
        out.write_all(bytes);
        done += static_cast<int64_t>(bytes.size());
        if (told) told(done);
      }
      out.write_all(bytes_of(std::string(static_cast<size_t>(padding(tensor.bytes())), '\0')));
    }
    out.sync_and_close();
    std::filesystem::rename(draft, file);
    sync_directory(std::filesystem::absolute(file).parent_path());
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(draft, ignored);
    throw;
  }
}

}  // namespace tandem::hub
