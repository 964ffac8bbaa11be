#include "tandem/hub/safetensors_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/hub/hub_dtype.h"

namespace tandem::hub {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kChunkBytes = int64_t{16} << 20;

std::vector<std::vector<OutTensor>> in_shards(std::vector<OutTensor> tensors, int64_t most) {
  std::vector<std::vector<OutTensor>> shards(1);
  int64_t used = 0;
  for (OutTensor& tensor : tensors) {
    const int64_t bytes = tensor.bytes();
    if (used + bytes > most && !shards.back().empty()) {
      shards.emplace_back();
      used = 0;
    }
    used += bytes;
    shards.back().push_back(std::move(tensor));
  }
  for (std::vector<OutTensor>& shard : shards) {
    std::sort(shard.begin(), shard.end(), [](const OutTensor& a, const OutTensor& b) {
      const int64_t wide = dtype_bytes(a.dtype), narrow = dtype_bytes(b.dtype);
      return wide != narrow       ? wide > narrow
             : a.dtype != b.dtype ? safetensors_name(a.dtype) > safetensors_name(b.dtype)
                                  : a.name < b.name;
    });
  }
  return shards;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

void write_tensor(OutputFile& file, const OutTensor& tensor, const GiveRows& give,
                  const std::function<void(int64_t)>& wrote) {
  const Box all = whole_box(tensor.shape);
  if (all.elems() == 0) return;
  const int64_t row_bytes = all.cols() * dtype_bytes(tensor.dtype);
  const int64_t step = std::max<int64_t>(1, kChunkBytes / row_bytes);
  std::vector<std::byte> chunk(static_cast<size_t>(std::min(step, all.rows()) * row_bytes));
  for (int64_t row = 0; row < all.row_end; row += step) {
    const Box rows{row, std::min(all.row_end, row + step), 0, all.col_end};
    const std::span<std::byte> part = std::span(chunk).first(static_cast<size_t>(rows.rows() * row_bytes));
    give(tensor, rows, part);
    file.write_all(part);
    wrote(static_cast<int64_t>(part.size()));
  }
}

}  // namespace

std::string safetensors_header(std::span<const OutTensor> tensors) {
  ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t at = 0;
  for (const OutTensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", safetensors_name(tensor.dtype)},
                           {"shape", tensor.shape.dims()},
                           {"data_offsets", {at, at + tensor.bytes()}}};
    at += tensor.bytes();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string length(8, '\0');
  for (size_t i = 0; i < length.size(); ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  return length + text;
}

WrittenWeights write_safetensors(const std::filesystem::path& directory, std::vector<OutTensor> tensors,
                                 int64_t most_shard_bytes, const GiveRows& give,
                                 const std::function<void(int64_t)>& told) {
  WrittenWeights written;
  const auto shards = in_shards(std::move(tensors), most_shard_bytes);
  ordered_json weight_map = ordered_json::object();
  std::map<std::string, std::string> file_of;
  int64_t done = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shards.size() == 1
                                 ? "model.safetensors"
                                 : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    OutputFile file(directory / name);
    file.write_all(bytes_of(safetensors_header(shards[i])));
    for (const OutTensor& tensor : shards[i]) {
      write_tensor(file, tensor, give, [&](int64_t bytes) {
        done += bytes;
        if (told) told(done);
      });
      written.bytes += tensor.bytes();
      file_of[tensor.name] = name;
    }
    file.sync_and_close();
    written.files.push_back(name);
  }
  if (shards.size() > 1) {
    for (const auto& [tensor, file] : file_of) weight_map[tensor] = file;
    const ordered_json index = {{"metadata", {{"total_size", written.bytes}}}, {"weight_map", weight_map}};
    write_atomically(directory / "model.safetensors.index.json", index.dump(2) + "\n");
  }
  return written;
}

}  // namespace tandem::hub
