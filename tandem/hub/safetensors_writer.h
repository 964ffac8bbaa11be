// Writes tensors as transformers does: into model.safetensors, or, where they are more than a shard may hold,
// into model-00001-of-0000N.safetensors with an index. In a file the widest types come first, then names
// count; the header is padded to 8 bytes and says {"format": "pt"}.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tandem/base/box.h"
#include "tandem/base/dtype.h"
#include "tandem/base/shape.h"

namespace tandem::hub {

struct OutTensor {
  std::string name;
  DType dtype = DType::F32;  // one that a weight may have
  Shape shape;

  int64_t bytes() const { return shape.elems() * dtype_bytes(dtype); }
};

// Gives the elements of a tensor's rows, [first dim, product of the others], in its own type. Called for the
// rows of each tensor in order, for some of them at a time.
using GiveRows = std::function<void(const OutTensor& tensor, const Box& rows, std::span<std::byte> dst)>;

struct WrittenWeights {
  std::vector<std::string> files;
  int64_t bytes = 0;  // of all tensors
};

// Shards take tensors in the order given. Everything is on the disk when it returns; the directory is the
// caller's to make and to make visible. `told` is called with the bytes written so far.
WrittenWeights write_safetensors(const std::filesystem::path& directory, std::vector<OutTensor> tensors,
                                 int64_t most_shard_bytes, const GiveRows& give,
                                 const std::function<void(int64_t)>& told = {});

// The header of a file, its length and padding included; `tensors` in the order of their places.
std::string safetensors_header(std::span<const OutTensor> tensors);

}  // namespace tandem::hub
