// How products are cut, where the cut trades reuse of B against the number of tasks.
#include "tandem/kernels/cpu/gemm/gemm_blocking.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tandem::cpu {
namespace {

struct Tasks {
  int64_t least;  // panels of rows in any but the last
  int64_t cols;   // panels
  int64_t count;

  bool operator==(const Tasks&) const = default;
};

void PrintTo(const Tasks& tasks, std::ostream* out) {
  *out << fmt::format("least {} cols {} count {}", tasks.least, tasks.cols, tasks.count);
}

// Of a slice, as gemm.cpp cuts it.
Tasks tasks_of(const Blocking& cut, const GemmEngine& engine) {
  const RowBlocks blocks{divide_up(cut.slice_rows, engine.mr), cut.block_least, engine.block_panels};
  int64_t least = blocks.panels;
  for (int64_t first = 0; first + blocks.size_at(first) < blocks.panels; first += blocks.size_at(first)) {
    least = std::min(least, blocks.size_at(first));
  }
  return {least, cut.task_cols / engine.nr, blocks.count() * divide_up(cut.slice_cols, cut.task_cols)};
}

Tasks tasks_of(int64_t m, int64_t n, int64_t k, const GemmEngine& engine) {
  return tasks_of(plan_blocking({.m = m, .n = n, .k = k}, engine, true), engine);
}

const GemmEngine& split_engine() { return gemm_engine(Isa::Amx, DType::F32); }

GemmEngine with_few_rows(GemmEngine engine) {
  engine.shared_least = engine.block_least;
  return engine;
}

// Those of cpu-gpt and cpu-llama.
TEST(GemmBlocking, WeightGradientsOnAmxHaveTallTasksWhereSixteenRemain) {
  const GemmEngine& engine = split_engine();
  EXPECT_EQ(tasks_of(1152, 384, 4096, engine), (Tasks{4, 6, 16}));
  EXPECT_EQ(tasks_of(384, 384, 4096, engine), (Tasks{4, 2, 18}));
  EXPECT_EQ(tasks_of(384, 1536, 4096, engine), (Tasks{4, 8, 18}));
  EXPECT_EQ(tasks_of(1024, 512, 2048, engine), (Tasks{4, 8, 16}));
  EXPECT_EQ(tasks_of(512, 512, 2048, engine), (Tasks{4, 4, 16}));
  EXPECT_EQ(tasks_of(512, 1408, 2048, engine), (Tasks{4, 11, 16}));

  EXPECT_EQ(tasks_of(1536, 384, 4096, engine), (Tasks{2, 12, 13}));
  EXPECT_EQ(tasks_of(256, 384, 4096, engine), (Tasks{2, 3, 16}));
  EXPECT_EQ(tasks_of(2816, 512, 2048, engine), (Tasks{2, 16, 12}));
  EXPECT_EQ(tasks_of(4096, 512, 2048, engine), (Tasks{2, 16, 12}));
}

TEST(GemmBlocking, TallTasksLeaveNoThreadWithoutOneAndNeedNoMemory) {
  const GemmEngine& engine = split_engine();
  const GemmEngine few_rows = with_few_rows(engine);
  for (int64_t m = 32; m < 3000; m += 96) {
    for (int64_t n = 32; n < 3000; n += 96) {
      for (int64_t k : {600, 2048}) {
        SCOPED_TRACE(fmt::format("{} x {} x {}", m, n, k));
        EXPECT_GE(tasks_of(m, n, k, engine).count, std::min<int64_t>(16, tasks_of(m, n, k, few_rows).count));
        const GemmShape shape{.m = m, .n = n, .k = k};
        EXPECT_EQ(workspace_bytes(shape, engine, 3), workspace_bytes(shape, few_rows, 3));
      }
    }
  }
}

// There the last tasks would only become longer.
TEST(GemmBlocking, TasksThatPackTheirOwnRowsStaySmall) {
  const GemmEngine& engine = split_engine();
  for (int64_t m : {384, 2048, 4096}) {
    EXPECT_EQ(plan_blocking({.m = m, .n = 1536, .k = 1536}, engine, false).block_least, engine.block_least);
  }
}

TEST(GemmBlocking, OtherEnginesCutSharedRowsAsFineAsTheirOwn) {
  for (Isa isa : {Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16, Isa::Amx}) {
    for (DType dtype : {DType::F32, DType::BF16}) {
      const GemmEngine& engine = gemm_engine(isa, dtype);
      if (&engine == &split_engine()) continue;
      EXPECT_EQ(plan_blocking({.m = 384, .n = 1536, .k = 4096}, engine, true).block_least, 1)
          << isa_name(isa) << " " << dtype_name(dtype);
    }
  }
}

}  // namespace
}  // namespace tandem::cpu
