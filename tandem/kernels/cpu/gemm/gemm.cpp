// The loops around the register tile; gemm_blocking.h explains the cut.
#include "tandem/kernels/cpu/gemm/gemm.h"

#include <algorithm>
#include <type_traits>

#include "tandem/base/error.h"
#include "tandem/kernels/cpu/gemm/gemm_blocking.h"
#include "tandem/kernels/cpu/gemm/gemm_engine.h"

namespace tandem::cpu {
namespace {

constexpr int64_t kPackDepth = 64;  // of k in a packing task, where rows of k are read from end to end

const GemmEngine& engine_for(Isa isa, DType a, DType b) { return gemm_engine(isa, a == b ? a : DType::F32); }

const std::byte* element(const MatrixView& view, int64_t row, int64_t col) {
  return static_cast<const std::byte*>(view.data) +
         (row * view.row_stride + col * view.col_stride) * dtype_bytes(view.dtype);
}

// What a thread will probably need next, a few lines with each tile, so that it does not wait for memory:
// what it packs of an A that runs along k, and the next panel of B. Only a hint: it may be wrong.
class AheadReader {
 public:
  AheadReader(const MatrixView& a, int64_t row, int64_t rows, int64_t k, int64_t depth, int64_t num_tiles) {
    if (a.col_stride != 1 || rows <= 0) return;
    const int64_t elem_bytes = dtype_bytes(a.dtype);
    row_ = element(a, row, k);
    rows_ = rows;
    stride_ = a.row_stride * elem_bytes;
    row_lines_ = divide_up(depth * elem_bytes, 64);
    per_tile_ = divide_up(rows * row_lines_, num_tiles);
  }
  // The next `bytes` of B are at `b`, for `num_tiles` tiles to share.
  void start_column(const std::byte* b, int64_t bytes, int64_t num_tiles) {
    b_ = b;
    b_lines_ = bytes / 64;
    b_per_tile_ = divide_up(b_lines_, num_tiles);
  }
  FetchAhead next() {
    FetchAhead ahead{b_, 0, b_, std::min(b_per_tile_, b_lines_)};
    b_ += 64 * ahead.b_lines;
    b_lines_ -= ahead.b_lines;
    if (rows_ == 0) return ahead;
    ahead.first = row_ + 64 * line_;
    ahead.lines = std::min(per_tile_, row_lines_ - line_);
    line_ += ahead.lines;
    if (line_ == row_lines_) {
      line_ = 0;
      row_ += stride_;
      --rows_;
    }
    return ahead;
  }

 private:
  const std::byte* row_ = nullptr;
  int64_t rows_ = 0;
  int64_t stride_ = 0;
  int64_t row_lines_ = 0;
  int64_t line_ = 0;  // the first of the row not yet asked for
  int64_t per_tile_ = 0;
  const std::byte* b_ = nullptr;
  int64_t b_lines_ = 0;
  int64_t b_per_tile_ = 0;
};

class Product {
 public:
  Product(const GemmArgs& args, const GemmEngine& engine, const Blocking& cut, std::byte* workspace,
          int num_threads)
      : args_(args), engine_(engine), cut_(cut), num_threads_(num_threads) {
    packed_b_ = workspace;
    packed_a_ = workspace + cut.packed_b_bytes;
    threads_ = workspace + cut.shared_bytes();
  }

  // ParallelFor: void(int64_t num_tasks, fn(task, worker)).
  template <typename ParallelFor>
  void run(ParallelFor&& parallel_for) {
    for (int64_t col = 0; col < args_.n; col += cut_.slice_cols) {
      for (int64_t k = 0; k < args_.k; k += cut_.slice_depth) {
        const int64_t cols = std::min(cut_.slice_cols, args_.n - col);
        const int64_t depth = std::min(cut_.slice_depth, args_.k - k);
        const Panels b{args_.b.dtype, args_.b.col_stride, args_.b.row_stride, cols,          depth,
                       engine_.nr,    packed_b_,          cut_.b_panel_bytes, engine_.pack_b};
        pack_panels(element(args_.b, k, col), b, parallel_for);
        for (int64_t row = 0; row < args_.m; row += cut_.slice_rows) {
          const Slice slice{row, std::min(cut_.slice_rows, args_.m - row), col, cols, k, depth};
          if (cut_.shared_a) {
            Panels a = panels_of_a(packed_a_, slice.rows, depth);
            pack_panels(element(args_.a, row, k), a, parallel_for);
          }
          run_slice(slice, parallel_for);
        }
      }
    }
  }

 private:
  struct Slice {
    int64_t row, rows, col, cols, k, depth;
  };
  // A tile of C in one pass.
  struct Tile {
    int64_t row, rows, col, cols;
    bool first, last;  // pass over k
  };
  struct Panels {
    DType dtype;
    int64_t line_stride, k_stride;
    int64_t lines, depth, width;
    std::byte* dst;
    int64_t panel_bytes;
    void (*pack)(const PackArgs&);
  };

  Panels panels_of_a(std::byte* dst, int64_t rows, int64_t depth) const {
    return {args_.a.dtype, args_.a.row_stride, args_.a.col_stride, rows, depth, engine_.mr,
            dst,           cut_.a_panel_bytes, engine_.pack_a};
  }

  // Lines [line, line + lines) and k [begin, begin + depth) of a slice whose first element is at src.
  void pack(const std::byte* src, const Panels& panels, int64_t line, int64_t lines, int64_t begin,
            int64_t depth) const {
    const int64_t src_elem = dtype_bytes(panels.dtype), dst_elem = engine_.elem_bytes;
    panels.pack(
        {.src = src + (line * panels.line_stride + begin * panels.k_stride) * src_elem,
         .dtype = panels.dtype,
         .line_stride = panels.line_stride,
         .k_stride = panels.k_stride,
         .count = std::min(lines, panels.lines - line),
         .k = depth,
         .k_padded = round_up(depth, engine_.k_unit),
         .dst = panels.dst + line / panels.width * panels.panel_bytes + begin * panels.width * dst_elem,
         .panel_bytes = panels.panel_bytes});
  }

  template <typename ParallelFor>
  void pack_panels(const std::byte* src, const Panels& panels, ParallelFor&& parallel_for) const {
    const bool by_depth = panels.line_stride == 1;  // all lines of a few steps, or all steps of a few lines
    const int64_t part = by_depth ? kPackDepth : cut_.kc;
    const int64_t parts = divide_up(panels.depth, part);
    const int64_t lines = by_depth ? panels.lines : panels.width;
    parallel_for(divide_up(panels.lines, lines) * parts, [&](int64_t task, int) {
      const int64_t begin = task % parts * part;
      pack(src, panels, task / parts * lines, lines, begin, std::min(part, panels.depth - begin));
    });
  }

  template <typename ParallelFor>
  void run_slice(const Slice& slice, ParallelFor&& parallel_for) const {
    const RowBlocks blocks{divide_up(slice.rows, engine_.mr), cut_.block_least, engine_.block_panels};
    const int64_t col_tasks = divide_up(slice.cols, cut_.task_cols);
    parallel_for(blocks.count() * col_tasks, [&](int64_t task, int worker) {
      const int64_t panel = blocks.first_of(task / col_tasks);
      const int64_t row = panel * engine_.mr, col = task % col_tasks * cut_.task_cols;
      const int64_t rows = std::min(blocks.size_at(panel) * engine_.mr, slice.rows - row);
      run_block(slice, row, rows, col, std::min(cut_.task_cols, slice.cols - col),
                threads_ + worker * cut_.thread_bytes());
    });
  }

  // A task: rows and columns count from the slice's corner.
  void run_block(const Slice& slice, int64_t row, int64_t rows, int64_t col, int64_t cols,
                 std::byte* scratch) const {
    auto* sums = reinterpret_cast<float*>(scratch);
    std::byte* packed_a =
        cut_.shared_a ? packed_a_ + row / engine_.mr * cut_.a_panel_bytes : scratch + cut_.sums_bytes;
    if (engine_.enter != nullptr) engine_.enter();
    for (int64_t k = 0; k < slice.depth; k += cut_.kc) {
      const int64_t depth = std::min(cut_.kc, slice.depth - k), padded = round_up(depth, engine_.k_unit);
      if (!cut_.shared_a) {
        pack(element(args_.a, slice.row + row, slice.k + k), panels_of_a(packed_a, rows, depth), 0, rows, 0,
             depth);
      }
      AheadReader ahead = read_ahead(slice, row, rows, cols, k);
      const bool first = slice.k + k == 0, last = slice.k + k + depth == args_.k;
      const std::byte* packed_b = packed_b_ + k * engine_.nr * engine_.elem_bytes;
      for (int64_t c = 0; c < cols; c += engine_.nr) {
        const std::byte* b = packed_b + (col + c) / engine_.nr * cut_.b_panel_bytes;
        ahead.start_column(b + cut_.b_panel_bytes,
                           c + engine_.nr < cols ? padded * engine_.nr * engine_.elem_bytes : 0,
                           divide_up(rows, engine_.mr));
        for (int64_t r = 0; r < rows; r += engine_.mr) {
          const Tile tile{slice.row + row + r,
                          std::min(engine_.mr, rows - r),
                          slice.col + col + c,
                          std::min(engine_.nr, cols - c),
                          first,
                          last};
          multiply(tile, padded, packed_a + r / engine_.mr * cut_.a_panel_bytes, b, ahead.next(), sums,
                   sums + r * cut_.task_cols + c);
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
      rows = std::min(rows, slice.rows - row);
    }
    return AheadReader(args_.a, slice.row + row, cut_.shared_a ? 0 : rows, slice.k + next_k,
                       std::min(cut_.kc, slice.depth - next_k), num_tiles);
  }

  template <typename Pointer>
  Pointer c_element(Pointer base, int64_t row, int64_t col) const {
    using Byte =
        std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const std::byte, std::byte>;
    if (base == nullptr) return nullptr;
    return static_cast<Byte*>(base) + (row * args_.ldc + col) * dtype_bytes(args_.c_dtype);
  }

  const void* bias_element(int64_t col) const {
    if (args_.bias == nullptr) return nullptr;
    return static_cast<const std::byte*>(args_.bias) + col * dtype_bytes(args_.a.dtype);
  }

  // One register tile. `spare` holds mr x nr sums; `block` is the tile's place among the task's sums.
  void multiply(const Tile& tile, int64_t depth, const std::byte* a, const std::byte* b,
                const FetchAhead& ahead, float* spare, float* block) const {
    void* c = c_element(args_.c, tile.row, tile.col);
    FinishArgs finish{.sums = spare,
                      .sums_stride = engine_.nr,
                      .rows = tile.rows,
                      .cols = tile.cols,
                      .c = c,
                      .c_stride = args_.ldc,
                      .c_dtype = args_.c_dtype,
                      .accumulate = args_.accumulate || !tile.first,
                      .bias = tile.last ? bias_element(tile.col) : nullptr,
                      .bias_dtype = args_.a.dtype,
                      .pre = tile.last ? c_element(args_.pre, tile.row, tile.col) : nullptr};
    const bool ragged = tile.cols < engine_.nr || (engine_.whole_rows && tile.rows < engine_.mr);
    if (args_.c_dtype == DType::F32 && !ragged) {  // partial sums live in C
      engine_.product(depth, a, b, static_cast<float*>(c), args_.ldc, tile.rows, tile.cols, finish.accumulate,
                      ahead);
      finish.sums = static_cast<const float*>(c);
      finish.sums_stride = args_.ldc;
      finish.accumulate = false;
      if (finish.bias != nullptr || finish.pre != nullptr) engine_.finish(finish);
      return;
    }
    if (args_.c_dtype != DType::F32 && !(tile.first && tile.last)) {  // partial sums live in the task's block
      engine_.product(depth, a, b, block, cut_.task_cols, tile.rows, tile.cols, !tile.first, ahead);
      if (!tile.last) return;
      finish.sums = block;
      finish.sums_stride = cut_.task_cols;
      finish.accumulate = args_.accumulate;
    } else {
      engine_.product(depth, a, b, spare, engine_.nr, tile.rows, tile.cols, false, ahead);
    }
    engine_.finish(finish);
  }

  const GemmArgs& args_;
  const GemmEngine& engine_;
  const Blocking& cut_;
  int num_threads_;
  std::byte* packed_b_;
  std::byte* packed_a_;  // if shared
  std::byte* threads_;   // sums, then packed A if not shared, for each
};

template <typename ParallelFor>
void run(const GemmArgs& args, const GemmEngine& engine, std::span<std::byte> workspace, int num_threads,
         ParallelFor&& parallel_for) {
  if (args.m == 0 || args.n == 0) return;
  TANDEM_CHECK(args.k > 0, "matrix product over an empty dimension");
  TANDEM_CHECK(!args.accumulate || (args.bias == nullptr && args.pre == nullptr));
  TANDEM_CHECK(args.bias == nullptr || args.c_dtype == args.a.dtype || args.c_dtype == DType::F32);
  const GemmShape shape{args.m, args.n, args.k, args.a.dtype, args.b.dtype, args.c_dtype, args.isa};
  const size_t needed = workspace_bytes(shape, engine, num_threads);
  TANDEM_CHECK(workspace.size() >= needed, "workspace of {} bytes, {} needed", workspace.size(), needed);
  const bool shared_a = args.a.row_stride == 1 && can_share_a(shape, engine);
  const Blocking cut = plan_blocking(shape, engine, shared_a);
  Product(args, engine, cut, workspace.data(), num_threads).run(parallel_for);
}

}  // namespace

size_t workspace_bytes(const GemmShape& shape, const GemmEngine& engine, int num_threads) {
  if (shape.m == 0 || shape.n == 0) return 0;
  const auto bytes = [&](bool shared_a) {
    const Blocking cut = plan_blocking(shape, engine, shared_a);
    return static_cast<size_t>(cut.shared_bytes() + cut.thread_bytes() * num_threads);
  };
  return can_share_a(shape, engine) ? std::max(bytes(false), bytes(true)) : bytes(false);
}

void run_serial(const GemmArgs& args, const GemmEngine& engine, std::span<std::byte> workspace) {
  run(args, engine, workspace, 1, [](int64_t num_tasks, auto&& fn) {
    for (int64_t task = 0; task < num_tasks; ++task) fn(task, 0);
  });
}

size_t gemm_workspace(const GemmShape& shape, int num_threads) {
  return workspace_bytes(shape, engine_for(shape.isa, shape.a, shape.b), num_threads);
}

void gemm(const GemmArgs& args, std::span<std::byte> workspace, ThreadPool& pool) {
  run(args, engine_for(args.isa, args.a.dtype, args.b.dtype), workspace, pool.num_threads(),
      [&](int64_t num_tasks, auto&& fn) { pool.parallel_for(num_tasks, fn); });
}

void gemm_serial(const GemmArgs& args, std::span<std::byte> workspace) {
  run_serial(args, engine_for(args.isa, args.a.dtype, args.b.dtype), workspace);
}

}  // namespace tandem::cpu
