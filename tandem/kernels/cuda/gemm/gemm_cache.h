// The choices of how to run products, kept on disk: a line a product in a file of this kind of GPU and
// version of the library. So products are timed once a machine, and two runs give the same bits: within a
// process a choice never changes, between processes the file makes it the same. Processes that start together
// choose one after the other, so that each finds what the one before it has chosen.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tandem/kernels/cuda/gemm/gemm.h"

namespace tandem::cuda {

// The library's algorithm, or the product alone with the epilogue as a pass of ours.
struct GemmChoice {
  bool separate = false;
  std::array<uint64_t, 8> algorithm{};  // the library's own description, where not separate

  bool operator==(const GemmChoice&) const = default;
};

// One line's name for a product: "m=768 n=768 k=32768 ...". Whether it is added to D makes no difference:
// plans that add up a gradient and plans that overwrite it take the same algorithm, and give the same bits.
std::string gemm_key(const Gemm& gemm, int alignment);

// In $TANDEM_CACHE_DIR, $XDG_CACHE_HOME/tandem or $HOME/.cache/tandem; empty where there is none of them.
std::filesystem::path gemm_cache_file(std::string_view gpu, int major, int minor, size_t library_version);

class GemmCache {
 public:
  // Reads the file; one that is missing, and lines that make no sense, count as nothing known. An empty path
  // is a cache that is kept nowhere.
  explicit GemmCache(std::filesystem::path file);
  std::optional<GemmChoice> find(const std::string& key) const;

  // While it lives, others that want one of the same file wait, or go on without after a while: then both
  // choose.
  class Turn {
   public:
    explicit Turn(const std::filesystem::path& file);
    ~Turn();
    Turn(Turn&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
    Turn& operator=(Turn&&) = delete;

   private:
    int descriptor_ = -1;
  };
  void refresh();  // with what others have written meanwhile
  // Also writes the file, with what others have written to it meanwhile. A directory that cannot be written
  // costs time in the next run, no more, so it is not an error.
  void add(const std::string& key, const GemmChoice& choice);

 private:
  std::filesystem::path file_;
  std::map<std::string, GemmChoice> choices_;
};

}  // namespace tandem::cuda
