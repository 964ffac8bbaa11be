// The digests of a rank's part of a checkpoint, taken of the live memory while that is copied.
#pragma once

#include <span>

#include "tandem/checkpoint/part.h"

namespace tandem {

class ThreadPool;

// Where the file has the view, in the staging memory. A view that was put there by its owner stays as it is:
// empty then.
std::span<std::byte> staged_at(const TensorView& view, const Shard& shard, std::span<std::byte> staging);

// Digests each view's live memory into its shard and, given staging, copies it to where the file has it.
// `places` are those of describe_part.
void take_digests(std::span<const TensorView> views, std::span<const ShardPlace> places,
                  std::span<std::byte> staging, Part& part, ThreadPool* pool);

}  // namespace tandem
