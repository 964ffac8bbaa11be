// The loops around the register tile. B is packed once, by all threads, a slice of at most kPackedBytes at a
// time; then each task owns a block of C (a few panels of rows by a group of columns), walks all of the
// slice's k, packs its own rows of A for each pass, and finishes its block while it is in cache.
#include "tandem/kernels/cpu/gemm.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/kernels/cpu/gemm_engine.h"

namespace tandem::cpu {
namespace {

constexpr int64_t kPackedBytes = 8 << 20;  // of B at a time; shared by all cores, so sized for the L3 cache
constexpr int64_t kMinSliceCols = 256;     // fewer would pack A too often
constexpr int64_t kSliceDepth = 4096;      // most of k in one slice, where C can hold partial sums
constexpr int64_t kMaxPanels = 8;          // panels of A in a task
constexpr int64_t kMinTasks = 16;          // below, columns are divided too
constexpr int64_t kAlign = 64;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }

const GemmEngine& engine_for(Isa isa, DType a, DType b) { return gemm_engine(isa, a == b ? a : DType::F32); }

// Row blocks shrink towards the end, a sixth of what is left at a time: large ones reuse B best, and small
// last ones keep threads from waiting for each other.
struct RowBlocks {
  int64_t panels;

  int64_t size_at(int64_t first) const {
    return std::clamp<int64_t>(divide_up(panels - first, 6), 1, kMaxPanels);
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

// How a product is cut. A function of shape and engine alone.
struct Blocking {
  int64_t kc;           // of k in one pass
  int64_t slice_passes;  // passes in a slice
  int64_t slice_cols;
  RowBlocks row_blocks;
  int64_t max_rows;      // of a row block
  int64_t task_cols;
  int64_t panel_bytes;   // of a packed panel of B, all passes of a slice
  int64_t packed_b_bytes;
  int64_t packed_a_bytes;
  int64_t sums_bytes;
  int64_t thread_bytes() const { return packed_a_bytes + sums_bytes; }
};

Blocking plan(const GemmShape& shape, const GemmEngine& engine) {
  Blocking cut;
  const int64_t passes = divide_up(shape.k, engine.kc);
  cut.kc = round_up(divide_up(shape.k, passes), std::max<int64_t>(engine.k_unit, 4));
  const bool splits_k = shape.c == DType::F32 && shape.k > kSliceDepth;
  cut.slice_passes = splits_k ? std::max<int64_t>(1, kSliceDepth / cut.kc) : divide_up(shape.k, cut.kc);
  const int64_t slice_k = std::min(cut.slice_passes * cut.kc, round_up(shape.k, engine.k_unit));
  cut.panel_bytes = round_up(slice_k * engine.nr * dtype_bytes(engine.panel), kAlign);

  const int64_t fitting = kPackedBytes / (cut.panel_bytes / engine.nr);
  const int64_t slices = divide_up(shape.n, std::max(fitting, kMinSliceCols));
  cut.slice_cols = round_up(divide_up(shape.n, slices), engine.nr);
  cut.packed_b_bytes = cut.slice_cols / engine.nr * cut.panel_bytes;

  cut.row_blocks = {divide_up(shape.m, engine.mr)};
  cut.max_rows = cut.row_blocks.size_at(0) * engine.mr;
  const int64_t col_panels = cut.slice_cols / engine.nr;
  const int64_t row_tasks = cut.row_blocks.count();
  const int64_t col_tasks = row_tasks < kMinTasks / 2 ? std::min(divide_up(kMinTasks, row_tasks), col_panels) : 1;
  cut.task_cols = divide_up(col_panels, col_tasks) * engine.nr;

  cut.packed_a_bytes =
      round_up(cut.max_rows * round_up(cut.kc, engine.k_unit) * dtype_bytes(engine.panel), kAlign) + kAlign;
  const bool keeps_block = shape.c != DType::F32 && shape.k > cut.kc;
  const int64_t sums = keeps_block ? cut.max_rows * cut.task_cols : engine.mr * engine.nr;
  cut.sums_bytes = round_up(sums * 4, kAlign);
  return cut;
}

// Fetches the part of A that a thread will probably pack next into the second-level cache, a little with
// each tile, so that packing does not wait for memory. Only a hint: it may be wrong.
class AheadReader {
 public:
  AheadReader(const MatrixView& a, int64_t row, int64_t rows, int64_t k, int64_t depth, int64_t num_tiles) {
    const int64_t bytes = dtype_bytes(a.dtype);
    at_ = static_cast<const std::byte*>(a.data) + (row * a.row_stride + k * a.col_stride) * bytes;
    const bool along_k = a.col_stride == 1;
    if (!along_k) return;
    lines_ = along_k ? rows : depth;
    line_bytes_ = (along_k ? depth : rows) * bytes;
    stride_ = (along_k ? a.row_stride : a.col_stride) * bytes;
    per_tile_ = divide_up(lines_, num_tiles);
  }
  void advance() {
    for (int64_t i = 0; i < per_tile_ && lines_ > 0; ++i, --lines_, at_ += stride_) {
      for (int64_t byte = 0; byte < line_bytes_; byte += kAlign) __builtin_prefetch(at_ + byte, 0, 2);
    }
  }

 private:
  const std::byte* at_;
  int64_t lines_ = 0;
  int64_t line_bytes_ = 0;
  int64_t stride_ = 0;
  int64_t per_tile_ = 0;
};

class Product {
 public:
  Product(const GemmArgs& args, const GemmEngine& engine, const Blocking& cut, std::byte* workspace, int num_threads)
      : args_(args),
        engine_(engine),
        cut_(cut),
        packed_b_(workspace),
        threads_(workspace + cut.packed_b_bytes),
        num_threads_(num_threads) {}

  // ParallelFor: void(int64_t num_tasks, fn(task, worker)).
  template <typename ParallelFor>
  void run(ParallelFor&& parallel_for) {
    const int64_t slice_k = cut_.slice_passes * cut_.kc;
    for (int64_t col = 0; col < args_.n; col += cut_.slice_cols) {
      for (int64_t k = 0; k < args_.k; k += slice_k) {
        const Slice slice{col, std::min(cut_.slice_cols, args_.n - col), k, std::min(slice_k, args_.k - k)};
        const int64_t passes = divide_up(slice.depth, cut_.kc);
        parallel_for(divide_up(slice.cols, engine_.nr) * passes,
                     [&](int64_t task, int) { pack_b(slice, task / passes, task % passes); });
        const int64_t col_tasks = divide_up(slice.cols, cut_.task_cols);
        parallel_for(cut_.row_blocks.count() * col_tasks, [&](int64_t task, int worker) {
          compute(slice, cut_.row_blocks.first_of(task / col_tasks), task % col_tasks * cut_.task_cols,
                  threads_ + worker * cut_.thread_bytes());
        });
      }
    }
  }

 private:
  struct Slice {
    int64_t col, cols, k, depth;
  };
  // The tiles of one pass: `rows` x `cols` of C at (row, col), with `depth` of k.
  struct Pass {
    int64_t row, rows, col, cols;
    bool first, last;
  };

  const std::byte* element(const MatrixView& view, int64_t row, int64_t col) const {
    return static_cast<const std::byte*>(view.data) +
           (row * view.row_stride + col * view.col_stride) * dtype_bytes(view.dtype);
  }
  template <typename Pointer>
  Pointer c_element(Pointer base, int64_t row, int64_t col) const {
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const std::byte, std::byte>;
    return base == nullptr ? nullptr
                           : static_cast<Byte*>(base) + (row * args_.ldc + col) * dtype_bytes(args_.c_dtype);
  }
  int64_t pass_bytes(int64_t pass, int64_t lines) const { return pass * cut_.kc * lines * dtype_bytes(engine_.panel); }

  void pack_b(const Slice& slice, int64_t panel, int64_t pass) const {
    const int64_t col = panel * engine_.nr, k = pass * cut_.kc;
    const int64_t depth = std::min(cut_.kc, slice.depth - k);
    engine_.pack_b({.src = element(args_.b, slice.k + k, slice.col + col),
                    .dtype = args_.b.dtype,
                    .line_stride = args_.b.col_stride,
                    .k_stride = args_.b.row_stride,
                    .count = std::min(engine_.nr, slice.cols - col),
                    .k = depth,
                    .k_padded = round_up(depth, engine_.k_unit),
                    .dst = packed_b_ + panel * cut_.panel_bytes + pass_bytes(pass, engine_.nr),
                    .panel_bytes = cut_.panel_bytes});
  }

  void compute(const Slice& slice, int64_t panel, int64_t col, std::byte* scratch) const {
    const int64_t row = panel * engine_.mr;
    const int64_t rows = std::min(cut_.row_blocks.size_at(panel) * engine_.mr, args_.m - row);
    const int64_t cols = std::min(cut_.task_cols, slice.cols - col);
    auto* sums = reinterpret_cast<float*>(scratch + cut_.packed_a_bytes);
    if (engine_.enter != nullptr) engine_.enter();
    for (int64_t pass = 0; pass * cut_.kc < slice.depth; ++pass) {
      const int64_t k = pass * cut_.kc;
      const int64_t depth = std::min(cut_.kc, slice.depth - k), padded = round_up(depth, engine_.k_unit);
      const int64_t a_bytes = engine_.mr * padded * dtype_bytes(engine_.panel);
      engine_.pack_a({.src = element(args_.a, row, slice.k + k),
                      .dtype = args_.a.dtype,
                      .line_stride = args_.a.row_stride,
                      .k_stride = args_.a.col_stride,
                      .count = rows,
                      .k = depth,
                      .k_padded = padded,
                      .dst = scratch,
                      .panel_bytes = a_bytes});
      AheadReader ahead = read_ahead(slice, row, rows, cols, k);
      const bool first = slice.k + k == 0, last = slice.k + k + depth == args_.k;
      for (int64_t c = 0; c < cols; c += engine_.nr) {
        const std::byte* b =
            packed_b_ + (col + c) / engine_.nr * cut_.panel_bytes + pass_bytes(pass, engine_.nr);
        for (int64_t r = 0; r < rows; r += engine_.mr) {
          const Pass tile{row + r, std::min(engine_.mr, rows - r), slice.col + col + c, std::min(engine_.nr, cols - c),
                          first, last};
          ahead.advance();
          multiply(tile, padded, scratch + r / engine_.mr * a_bytes, b, sums, sums + r * cut_.task_cols + c);
        }
      }
    }
    if (engine_.leave != nullptr) engine_.leave();
  }

  // After this pass comes the task's next one, or the first of another task: with equal tasks, the one as
  // many tasks further as there are threads.
  AheadReader read_ahead(const Slice& slice, int64_t row, int64_t rows, int64_t cols, int64_t k) const {
    const int64_t num_tiles = divide_up(rows, engine_.mr) * divide_up(cols, engine_.nr);
    int64_t next_k = k + cut_.kc;
    if (next_k >= slice.depth) {
      next_k = 0;
      const int64_t col_tasks = divide_up(slice.cols, cut_.task_cols);
      row += divide_up(num_threads_, col_tasks) * rows;
      rows = std::clamp<int64_t>(args_.m - row, 0, rows);
    }
    return AheadReader(args_.a, row, rows, slice.k + next_k, std::min(cut_.kc, slice.depth - next_k), num_tiles);
  }

  // One register tile. `spare` holds mr x nr sums; `block` is the tile's place among the task's sums.
  void multiply(const Pass& tile, int64_t depth, const std::byte* a, const std::byte* b, float* spare,
                float* block) const {
    void* c = c_element(args_.c, tile.row, tile.col);
    FinishArgs finish{.sums = spare,
                      .sums_stride = engine_.nr,
                      .rows = tile.rows,
                      .cols = tile.cols,
                      .c = c,
                      .c_stride = args_.ldc,
                      .c_dtype = args_.c_dtype,
                      .accumulate = args_.accumulate || !tile.first,
                      .bias = tile.last ? c_element(args_.bias, 0, tile.col) : nullptr,
                      .pre = tile.last ? c_element(args_.pre, tile.row, tile.col) : nullptr};
    const bool ragged =
        tile.cols < engine_.nr || (engine_.whole_rows && tile.rows < engine_.mr);
    if (args_.c_dtype == DType::F32 && !ragged) {  // partial sums live in C
      engine_.product(depth, a, b, static_cast<float*>(c), args_.ldc, tile.rows, tile.cols, finish.accumulate);
      finish.sums = static_cast<const float*>(c);
      finish.sums_stride = args_.ldc;
      finish.accumulate = false;
      if (finish.bias != nullptr || finish.pre != nullptr) engine_.finish(finish);
      return;
    }
    if (args_.c_dtype != DType::F32 && !(tile.first && tile.last)) {  // partial sums live in the task's block
      engine_.product(depth, a, b, block, cut_.task_cols, tile.rows, tile.cols, !tile.first);
      if (!tile.last) return;
      finish.sums = block;
      finish.sums_stride = cut_.task_cols;
      finish.accumulate = args_.accumulate;
    } else {
      engine_.product(depth, a, b, spare, engine_.nr, tile.rows, tile.cols, false);
    }
    engine_.finish(finish);
  }

  const GemmArgs& args_;
  const GemmEngine& engine_;
  const Blocking& cut_;
  std::byte* packed_b_;
  std::byte* threads_;
  int num_threads_;
};

template <typename ParallelFor>
void run(const GemmArgs& args, std::span<std::byte> workspace, int num_threads, ParallelFor&& parallel_for) {
  if (args.m == 0 || args.n == 0) return;
  TANDEM_CHECK(args.k > 0, "matrix product over an empty dimension");
  TANDEM_CHECK(!args.accumulate || (args.bias == nullptr && args.pre == nullptr));
  const GemmShape shape{args.m, args.n, args.k, args.a.dtype, args.b.dtype, args.c_dtype, args.isa};
  const GemmEngine& engine = engine_for(args.isa, args.a.dtype, args.b.dtype);
  const Blocking cut = plan(shape, engine);
  const size_t needed = gemm_workspace(shape, num_threads);
  TANDEM_CHECK(workspace.size() >= needed, "workspace of {} bytes, {} needed", workspace.size(), needed);
  Product(args, engine, cut, workspace.data(), num_threads).run(parallel_for);
}

}  // namespace

size_t gemm_workspace(const GemmShape& shape, int num_threads) {
  if (shape.m == 0 || shape.n == 0) return 0;
  const Blocking cut = plan(shape, engine_for(shape.isa, shape.a, shape.b));
  return static_cast<size_t>(cut.packed_b_bytes + cut.thread_bytes() * num_threads);
}

void gemm(const GemmArgs& args, std::span<std::byte> workspace, ThreadPool& pool) {
  run(args, workspace, pool.num_threads(),
      [&](int64_t num_tasks, auto&& fn) { pool.parallel_for(num_tasks, fn); });
}

void gemm_serial(const GemmArgs& args, std::span<std::byte> workspace) {
  run(args, workspace, 1, [](int64_t num_tasks, auto&& fn) {
    for (int64_t task = 0; task < num_tasks; ++task) fn(task, 0);
  });
}

}  // namespace tandem::cpu
