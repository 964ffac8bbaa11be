#include "tandem/kernels/cuda/kernel_test.h"

namespace tandem::cuda {
namespace {

using cpu::for_ragged_shapes;

TEST(CudaEmbedding, MatchesReferenceOverRaggedShapes) {
  TANDEM_NEEDS_GPU();
  for_ragged_shapes([](DType storage, int64_t rows, int64_t width) {
    const HostTensor ids = random_ids({2, rows}, 40, 1);
    const HostTensor table = random_tensor(storage, {40, width}, 2);
    const HostTensor positions = random_tensor(storage, {rows + 2, width}, 3);  // longer than the batch
    const TensorType y{storage, {2, rows, width}};
    expect_as_reference({Op::Embedding, {ids, table}, {y}, {-1}, {}}, 0);
    expect_as_reference({Op::Embedding, {ids, table, positions}, {y}, {-1}, {}}, 0);
    const HostTensor own = random_ids({2, rows}, rows, 4);
    expect_as_reference({Op::Embedding, {ids, table, positions, own}, {y}, {-1}, {{"positions", 1}}}, 0);
  });
}

// A shard: some ids come before it, some after.
TEST(CudaEmbedding, ReadsZerosForIdsOutsideItsShard) {
  TANDEM_NEEDS_GPU();
  for (const DType storage : kStorage) {
    for (const int64_t width : {31, 64, 4000}) {
      const HostTensor ids = random_ids({3, 33}, 40, 1);
      const HostTensor table = random_tensor(storage, {17, width}, 2);
      const HostTensor positions = random_tensor(storage, {33, width}, 3);
      const TensorType y{storage, {3, 33, width}};
      const Attrs attrs{{"first", 11}};
      expect_as_reference({Op::Embedding, {ids, table}, {y}, {-1}, attrs}, 0);
      expect_as_reference({Op::Embedding, {ids, table, positions}, {y}, {-1}, attrs}, 0);
    }
  }
}

Call embedding_grad(DType storage, HostTensor ids, int64_t vocab, int64_t width) {
  const Shape rows{ids.type.shape.elems(), width};
  return {Op::EmbeddingGrad,
          {random_tensor(DType::F32, {vocab, width}, 1), std::move(ids), random_tensor(storage, rows, 2)},
          {{DType::F32, {vocab, width}}},
          {0},
          {}};
}

TEST(CudaEmbeddingGrad, MatchesReferenceOverRaggedShapes) {
  TANDEM_NEEDS_GPU();
  for_ragged_shapes([](DType storage, int64_t rows, int64_t width) {
    expect_as_reference(embedding_grad(storage, random_ids({2, rows}, 7, 1), 7, width), 2e-5);
    expect_as_reference(embedding_grad(storage, random_ids({2, rows}, 1, 1), 1, width), 1e-4);
  });
}

// Row numbers of one, two and three digits of the sort, and ids that leave most of the table untouched.
TEST(CudaEmbeddingGrad, MatchesReferenceForVocabulariesOfAnySize) {
  TANDEM_NEEDS_GPU();
  for (const int64_t vocab : {1, 2, 511, 512, 513, 50304, 300000}) {
    SCOPED_TRACE(vocab);
    expect_as_reference(embedding_grad(DType::F32, random_ids({5, 200}, vocab, 3), vocab, 3), 1e-4);
  }
}

// Several blocks of the sort, and runs of one piece, of a few and of many.
TEST(CudaEmbeddingGrad, MatchesReferenceForFrequentIds) {
  TANDEM_NEEDS_GPU();
  for (const DType storage : kStorage) {
    for (const int64_t vocab : {3, 60, 200, 3000}) {
      for (const int64_t width : {9, 16}) {
        SCOPED_TRACE(fmt::format("{} {} {}", dtype_name(storage), vocab, width));
        expect_as_reference(embedding_grad(storage, random_ids({9, 1000}, vocab, 3), vocab, width), 2e-4);
      }
    }
  }
}

// Runs whose lengths lie around that of a piece, one behind the other at all offsets.
TEST(CudaEmbeddingGrad, MatchesReferenceForRunsAroundThePieceLength) {
  TANDEM_NEEDS_GPU();
  HostTensor ids(DType::I32, {1, 64 * 80});
  int64_t row = 0, left = 1;
  for (int64_t i = 0; i < ids.type.shape.elems(); ++i) {
    if (left == 0) {
      ++row;
      left = (row % 3 == 0 ? 63 : row % 3 == 1 ? 64 : 128) + row % 2;
    }
    --left;
    cpu::ref::set(ids.arg(), i, static_cast<double>(row));
  }
  expect_as_reference(embedding_grad(DType::BF16, ids, row + 1, 24), 2e-4);
}

TEST(CudaEmbeddingGrad, MatchesReferenceForWideRows) {
  TANDEM_NEEDS_GPU();
  expect_as_reference(embedding_grad(DType::BF16, random_ids({1, 300}, 50, 3), 50, 768), 2e-5);
  expect_as_reference(embedding_grad(DType::F16, random_ids({1, 200}, 2, 3), 2, 2056), 1e-4);
  expect_as_reference(embedding_grad(DType::F32, random_ids({1, 100}, 50, 3), 50, 1600), 2e-5);
}

TEST(CudaEmbeddingGrad, LeavesOutIdsOutsideItsShard) {
  TANDEM_NEEDS_GPU();
  for (const int64_t width : {31, 64}) {
    Call call = embedding_grad(DType::BF16, random_ids({2, 1000}, 40, 1), 17, width);
    for (const int64_t first : {0, 11, 40}) {
      call.attrs = {{"first", first}};
      expect_as_reference(call, 1e-4);
    }
    EXPECT_EQ(run_on_gpu(call)[0], call.in[0]);  // no id as large as 40
  }
}

TEST(CudaEmbeddingGrad, OverwritesAFreshAccumulator) {
  TANDEM_NEEDS_GPU();
  for (const int64_t width : {31, 64}) {
    Call call = embedding_grad(DType::BF16, random_ids({2, 300}, 30, 1), 50, width);
    call.attrs = {{"fresh", 1}};
    expect_as_reference(call, 1e-4);
    Call cut = embedding_grad(DType::F32, random_ids({2, 300}, 3, 1), 5, width);
    cut.attrs = {{"fresh", 1}};
    expect_as_reference(cut, 1e-4);
  }
}

// One by one, the ones would vanish beside 2^27; their sum does not, in one piece or in several.
TEST(CudaEmbeddingGrad, AddsEachRowsSumToTheAccumulatorOnce) {
  TANDEM_NEEDS_GPU();
  for (const DType storage : kStorage) {
    for (const int64_t count : {16, 512}) {
      for (const int64_t width : {1, 31, 200}) {
        Call call = embedding_grad(storage, random_ids({1, count}, 1, 1), 1, width);
        for (int64_t i = 0; i < width; ++i) cpu::ref::set(call.in[0].arg(), i, 0x1p27);
        for (int64_t i = 0; i < count * width; ++i) cpu::ref::set(call.in[2].arg(), i, 1);
        const HostTensor got = run_on_gpu(call)[0];
        for (int64_t i = 0; i < width; ++i) ASSERT_EQ(got.at(i), 0x1p27 + static_cast<double>(count)) << i;
      }
    }
  }
}

// A row's sum depends on its own occurrences alone: ranks that share the vocabulary get the bits of one.
TEST(CudaEmbeddingGrad, OfShardsGivesTheBitsOfTheWhole) {
  TANDEM_NEEDS_GPU();
  const Call whole = embedding_grad(DType::F32, random_ids({4, 1000}, 40, 1), 40, 20);
  const HostTensor want = run_on_gpu(whole)[0];
  for (int64_t shard = 0; shard < 4; ++shard) {
    Call call = whole;
    HostTensor part(DType::F32, {10, 20});
    const auto begin = static_cast<size_t>(shard) * part.bytes.size();
    std::memcpy(part.bytes.data(), whole.in[0].bytes.data() + begin, part.bytes.size());
    call.in[0] = part;
    call.out[0] = part.type;
    call.attrs = {{"first", 10 * shard}};
    const HostTensor got = run_on_gpu(call)[0];
    EXPECT_EQ(std::memcmp(got.bytes.data(), want.bytes.data() + begin, got.bytes.size()), 0) << shard;
  }
}

TEST(CudaPositionGrad, MatchesReferenceOverRaggedShapes) {
  TANDEM_NEEDS_GPU();
  for_ragged_shapes([](DType storage, int64_t rows, int64_t width) {
    const HostTensor acc = random_tensor(DType::F32, {rows + 1, width}, 1);
    const HostTensor dy = random_tensor(storage, {3, rows, width}, 2);
    expect_as_reference({Op::PositionGrad, {acc, dy}, {acc.type}, {0}, {}}, 2e-5);
    expect_as_reference({Op::PositionGrad, {acc, dy}, {acc.type}, {0}, {{"fresh", 1}}}, 2e-5);
  });
}

TEST(CudaPositionGrad, MatchesReferenceForALargeBatch) {
  TANDEM_NEEDS_GPU();
  const HostTensor acc = random_tensor(DType::F32, {5, 32}, 1);
  const HostTensor dy = random_tensor(DType::BF16, {70, 5, 32}, 2);
  expect_as_reference({Op::PositionGrad, {acc, dy}, {acc.type}, {0}, {}}, 5e-5);
}

}  // namespace
}  // namespace tandem::cuda
