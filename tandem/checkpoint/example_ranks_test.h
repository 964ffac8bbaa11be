// For tests: ranks as threads, each with its part of an ExampleState in memory of its own.
#pragma once

#include <algorithm>
#include <functional>
#include <random>
#include <thread>

#include "tandem/checkpoint/example_state_test.h"

namespace tandem {

inline void run_ranks(int num_ranks, const std::function<void(int)>& action) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) threads.emplace_back(action, rank);
  for (std::thread& thread : threads) thread.join();
}

// Cuts every tensor among the ranks, at places that follow from the seed; some ranks get nothing of some.
struct ExampleLayout {
  enum class Kind { Whole, Rows, Columns, Grid, Flat };
  Kind kind = Kind::Whole;
  int num_ranks = 1;
  uint64_t seed = 1;

  std::vector<Box> boxes(const ExampleTensor& tensor, int rank) const {
    const Box whole = whole_box(tensor.shape);
    std::mt19937_64 random(seed ^ hash_name(tensor.name));
    const auto cuts = [&](int64_t end, int parts) {
      std::vector<int64_t> result{0, end};
      for (int i = 1; i < parts; ++i)
        result.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(end + 1)));
      std::sort(result.begin(), result.end());
      return result;
    };
    const auto at = static_cast<size_t>(rank);
    switch (kind) {
      case Kind::Whole: {
        const bool owner = static_cast<int>(random() % static_cast<uint64_t>(num_ranks)) == rank;
        return owner ? std::vector{whole} : std::vector<Box>{};
      }
      case Kind::Rows: {
        const auto rows = cuts(whole.row_end, num_ranks);
        return {{rows[at], rows[at + 1], 0, whole.col_end}};
      }
      case Kind::Columns: {
        const auto cols = cuts(whole.col_end, num_ranks);
        return {{0, whole.row_end, cols[at], cols[at + 1]}};
      }
      case Kind::Grid: {
        const auto rows = cuts(whole.row_end, num_ranks / 2), cols = cuts(whole.col_end, 2);
        return {{rows[at / 2], rows[at / 2 + 1], cols[at % 2], cols[at % 2 + 1]}};
      }
      case Kind::Flat: break;
    }
    // Elements [begin, end) are at most three boxes: the end of a row, rows, the beginning of a row.
    const auto flat = cuts(whole.elems(), num_ranks);
    std::vector<Box> result;
    for (int64_t begin = flat[at]; begin < flat[at + 1];) {
      const int64_t row = begin / whole.cols(), col = begin % whole.cols(), left = flat[at + 1] - begin;
      const int64_t rows = col == 0 ? std::max<int64_t>(1, left / whole.cols()) : 1;
      const int64_t cols = std::min(whole.cols() - col, left);
      result.push_back({row, row + rows, col, col + cols});
      begin += rows * cols;
    }
    return result;
  }
};

class RankMemory {
 public:
  RankMemory(const ExampleState& state, const ExampleLayout& layout, int rank) {
    for (const ExampleTensor& tensor : state.tensors) {
      for (const Box& box : layout.boxes(tensor, rank)) {
        const auto elem = static_cast<size_t>(dtype_bytes(tensor.dtype));
        const auto row_bytes = static_cast<size_t>(whole_box(tensor.shape).cols()) * elem;
        std::vector<std::byte> memory;
        for (int64_t row = box.row_begin; row < box.row_end; ++row) {
          const auto* from = tensor.bytes.data() + static_cast<size_t>(row) * row_bytes;
          memory.insert(memory.end(), from + static_cast<size_t>(box.col_begin) * elem,
                        from + static_cast<size_t>(box.col_end) * elem);
        }
        pieces_.push_back({tensor.name, tensor.dtype, tensor.shape, box, std::move(memory)});
      }
    }
  }
  std::vector<TensorView> views() const {
    std::vector<TensorView> result;
    for (const Piece& piece : pieces_)
      result.push_back({piece.name, piece.dtype, piece.shape, piece.box, piece.bytes});
    return result;
  }
  std::vector<TensorTarget> targets() {
    std::vector<TensorTarget> result;
    for (Piece& piece : pieces_)
      result.push_back({piece.name, piece.dtype, piece.shape, piece.box, piece.bytes});
    return result;
  }
  bool operator==(const RankMemory& other) const {
    return std::equal(pieces_.begin(), pieces_.end(), other.pieces_.begin(), other.pieces_.end(),
                      [](const Piece& a, const Piece& b) { return a.bytes == b.bytes; });
  }

 private:
  struct Piece {
    std::string name;
    DType dtype;
    Shape shape;
    Box box;
    std::vector<std::byte> bytes;
  };
  std::vector<Piece> pieces_;
};

inline void save_as_ranks(const StoreRef& folder, const CheckpointMeta& meta, const ExampleState& state,
                          const ExampleLayout& layout) {
  CheckpointWriter zero(folder, 0, nullptr, {0, layout.num_ranks, "t"});
  run_ranks(layout.num_ranks, [&](int rank) {
    const RankMemory memory(state, layout, rank);
    if (rank == 0) return zero.save(meta, memory.views());
    CheckpointWriter(folder, 0, nullptr, {rank, layout.num_ranks, "t"}).save(meta, memory.views());
  });
}

}  // namespace tandem
