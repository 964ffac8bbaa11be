// How a product is cut into slices, passes and tasks: a function of shape and engine alone, so that neither
// the cut nor the order of any sum depends on the number of threads.
//
// B is packed a slice (slice_cols of its columns by slice_depth of k) at a time, by all threads. A task then
// owns a block of C and walks the slice's k in passes of `kc`. It packs its own rows of A for each pass,
// except in a shared cut: there a slice is a single pass, and slice_rows of A are packed by all threads too.
// That suits an A that runs along m, whose rows of k are then read from end to end rather than in snippets.
// Successive tasks of such a cut have the same rows and other columns, so A stays near whichever way they are
// cut, while B comes from afar once for each block of rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tandem/kernels/cpu/gemm/gemm.h"
#include "tandem/kernels/cpu/gemm/gemm_engine.h"

namespace tandem::cpu {

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }

// Row blocks shrink towards the end, a sixth of what is left at a time: large ones reuse B best, and small
// last ones keep threads from waiting for each other.
struct RowBlocks {
  int64_t panels;
  int64_t least;  // panels in one block, but for the last
  int64_t most;

  int64_t size_at(int64_t first) const {
    const int64_t left = panels - first;
    return std::min(std::clamp(divide_up(left, 6), least, most), left);
  }
  int64_t count() const {
    int64_t blocks = 0;
    for (int64_t first = 0; first < panels; first += size_at(first)) ++blocks;
    return blocks;
  }
  int64_t first_of(int64_t block) const {
    int64_t first = 0;
    for (; block > 0; --block) first += size_at(first);
    return first;
  }
};

struct Blocking {
  bool shared_a = false;
  int64_t kc = 0;
  int64_t slice_depth = 0;
  int64_t slice_cols = 0;
  int64_t slice_rows = 0;   // all of m unless A is shared
  int64_t block_least = 0;  // panels of A in a task, but for the last
  int64_t task_cols = 0;

  int64_t a_panel_bytes = 0;   // one pass
  int64_t b_panel_bytes = 0;   // all passes of a slice
  int64_t packed_a_bytes = 0;  // of all threads together if shared, of each otherwise
  int64_t packed_b_bytes = 0;
  int64_t sums_bytes = 0;  // of each thread: a tile, or the task's block where C cannot hold partial sums

  int64_t shared_bytes() const { return packed_b_bytes + (shared_a ? packed_a_bytes : 0); }
  int64_t thread_bytes() const { return sums_bytes + (shared_a ? 0 : packed_a_bytes); }
};

bool can_share_a(const GemmShape& shape,
                 const GemmEngine& engine);  // C must hold partial sums of several passes
Blocking plan_blocking(const GemmShape& shape, const GemmEngine& engine, bool shared_a);

// gemm_workspace() and gemm_serial() with an engine of the caller's choice: for tests, which can stand in for
// instructions that the machine lacks.
size_t workspace_bytes(const GemmShape& shape, const GemmEngine& engine, int num_threads);
void run_serial(const GemmArgs& args, const GemmEngine& engine, std::span<std::byte> workspace);

}  // namespace tandem::cpu
