// What `tandem inspect` shows: a checkpoint as a table, and how two of them differ.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/checkpoint/manifest.h"

namespace tandem {

class ThreadPool;

// Step, epoch, loss, time, machine, mesh and sizes; with `tensors`, a line for each of them too, and one for
// each shard of those that have several.
std::string describe_checkpoint(const Manifest& manifest, bool tensors);

// combine_digests of a tensor's elements in order: the same for equal content, however it is cut into shards.
// The one in the manifest, or else taken of the data, a bounded part of it at a time and checked as it is
// read.
std::string tensor_digest(const Manifest& manifest, const TensorEntry& tensor, ThreadPool* pool = nullptr);

struct Difference {
  std::string tensor;
  std::string what;  // "only in the first", "shape: [2] and [3]", kOtherValues; empty when there is none
};
inline constexpr std::string_view kOtherValues = "values";

// Every tensor of the two, a's order first; equal means bit for bit. Reads data only of tensors that are cut
// differently in the two and were whole on no rank.
std::vector<Difference> compare_all(const Manifest& a, const Manifest& b, ThreadPool* pool = nullptr);
std::vector<Difference> compare(const Manifest& a, const Manifest& b,
                                ThreadPool* pool = nullptr);  // unequal ones

}  // namespace tandem
