// Reads boxes of tensors out of a checkpoint's shards, whatever boxes those are. Only the digest blocks that
// hold something wanted are read, each once, and none is believed before its digest has been compared.
#pragma once

#include <cstddef>
#include <span>

#include "tandem/base/box.h"
#include "tandem/checkpoint/manifest.h"

namespace tandem {

class ThreadPool;

struct BoxRead {
  const TensorEntry* tensor;  // of the manifest
  Box box;
  std::span<std::byte> dst;       // its elements, row-major; empty when only the digests are to be checked
  std::span<std::byte> low = {};  // fp32 elements in halves: dst takes the high ones, this the low ones
};

// Throws DataError naming file and tensor; the destinations' contents are undefined then.
void read_boxes(const Manifest& manifest, std::span<const BoxRead> reads, ThreadPool* pool);

}  // namespace tandem
