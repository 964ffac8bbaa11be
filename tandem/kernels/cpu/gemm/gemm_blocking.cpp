#include "tandem/kernels/cpu/gemm/gemm_blocking.h"

namespace tandem::cpu {
namespace {

constexpr int64_t kPackedBytes = 8 << 20;  // of B at a time; shared by all cores, so sized for the L3 cache
constexpr int64_t kSharedABytes = 5 << 20;
constexpr int64_t kMinSliceCols = 256;  // fewer would pack A too often
constexpr int64_t kSliceDepth = 4096;   // most of k in one slice, where C can hold partial sums
constexpr int64_t kMinTasks = 16;       // with half as many row blocks or fewer, columns are divided too
constexpr int64_t kAlign = 64;

// Equal parts of at most `most`, in whole units.
int64_t equal_parts(int64_t total, int64_t most, int64_t unit) {
  return round_up(divide_up(total, divide_up(total, most)), unit);
}

struct TaskGrid {
  RowBlocks blocks;
  int64_t task_cols;  // in panels
  int64_t num_tasks;
};

TaskGrid divide_slice(const RowBlocks& blocks, int64_t col_panels) {
  const int64_t row_tasks = blocks.count();
  const int64_t col_tasks =
      row_tasks > kMinTasks / 2 ? 1 : std::min(divide_up(kMinTasks, row_tasks), col_panels);
  const int64_t task_cols = divide_up(col_panels, col_tasks);
  return {blocks, task_cols, row_tasks * divide_up(col_panels, task_cols)};
}

}  // namespace

bool can_share_a(const GemmShape& shape, const GemmEngine& engine) {
  return shape.c == DType::F32 && shape.k > engine.kc;
}

Blocking plan_blocking(const GemmShape& shape, const GemmEngine& engine, bool shared_a) {
  Blocking cut;
  cut.shared_a = shared_a;
  cut.kc = equal_parts(shape.k, engine.kc, std::max<int64_t>(engine.k_unit, 4));
  const int64_t padded_k = round_up(shape.k, engine.k_unit);
  if (shared_a) {
    cut.slice_depth = cut.kc;
  } else if (shape.c == DType::F32 && shape.k > kSliceDepth) {
    cut.slice_depth = std::max<int64_t>(1, kSliceDepth / cut.kc) * cut.kc;
  } else {
    cut.slice_depth = round_up(shape.k, cut.kc);
  }

  cut.b_panel_bytes = round_up(std::min(cut.slice_depth, padded_k) * engine.nr * engine.elem_bytes, kAlign);
  const int64_t fitting = kPackedBytes / cut.b_panel_bytes * engine.nr;
  cut.slice_cols = equal_parts(shape.n, std::max(fitting, kMinSliceCols), engine.nr);
  cut.packed_b_bytes = cut.slice_cols / engine.nr * cut.b_panel_bytes;

  cut.a_panel_bytes = round_up(std::min(cut.kc, padded_k) * engine.mr * engine.elem_bytes, kAlign);
  const int64_t shared_rows = kSharedABytes / cut.a_panel_bytes * engine.mr;
  cut.slice_rows = shared_a ? equal_parts(shape.m, shared_rows, engine.mr) : shape.m;
  const int64_t row_panels = divide_up(cut.slice_rows, engine.mr), col_panels = cut.slice_cols / engine.nr;
  TaskGrid grid = divide_slice({row_panels, engine.block_least, engine.block_panels}, col_panels);
  if (shared_a) {
    const TaskGrid taller = divide_slice({row_panels, engine.shared_least, engine.block_panels}, col_panels);
    if (taller.num_tasks >= kMinTasks) grid = taller;
  }
  const RowBlocks& blocks = grid.blocks;
  cut.block_least = blocks.least;
  cut.task_cols = grid.task_cols * engine.nr;
  cut.packed_a_bytes = (shared_a ? row_panels : blocks.size_at(0)) * cut.a_panel_bytes + kAlign;

  const bool keeps_block = shape.c != DType::F32 && shape.k > cut.kc;
  const int64_t sums = keeps_block ? blocks.size_at(0) * engine.mr * cut.task_cols : engine.mr * engine.nr;
  cut.sums_bytes = round_up(sums * 4, kAlign);
  return cut;
}

}  // namespace tandem::cpu
