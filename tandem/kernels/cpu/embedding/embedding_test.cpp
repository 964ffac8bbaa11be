#include "tandem/base/error.h"
#include "tandem/kernels/cpu/pointwise/pointwise_test.h"

namespace tandem::cpu {
namespace {

TEST(Embedding, MatchesReferenceOverRaggedShapes) {
  for_ragged_shapes([](DType storage, int64_t rows, int64_t width) {
    const HostTensor ids = random_ids({2, rows}, 40, 1);
    const HostTensor table = random_tensor(storage, {40, width}, 2);
    const HostTensor positions = random_tensor(storage, {rows + 2, width}, 3);  // longer than the batch
    const TensorType y{storage, {2, rows, width}};
    expect_matches_reference({Op::Embedding, {ids, table}, {y}, {-1}, {}}, 0);
    expect_matches_reference({Op::Embedding, {ids, table, positions}, {y}, {-1}, {}}, 0);
    const HostTensor own = random_ids({2, rows}, rows, 4);
    expect_matches_reference({Op::Embedding, {ids, table, positions, own}, {y}, {-1}, {{"positions", 1}}}, 0);
  });
}

TEST(Embedding, RefusesAnIdOutsideTheVocabulary) {
  HostTensor ids = random_ids({1, 9}, 4, 1);
  for (const double id : {-1.0, 4.0}) {
    ref::set(ids.arg(), 8, id);
    const Call call{
        Op::Embedding, {ids, random_tensor(DType::F32, {4, 3}, 2)}, {{DType::F32, {1, 9, 3}}}, {-1}, {}};
    EXPECT_THROW(run_fast(call), BugError);
  }
}

// A shard: some ids come before it, some after.
TEST(Embedding, ReadsZerosForIdsOutsideItsShard) {
  for_ragged_shapes([](DType storage, int64_t rows, int64_t width) {
    const HostTensor ids = random_ids({2, rows}, 40, 1);
    const HostTensor table = random_tensor(storage, {17, width}, 2);
    const HostTensor positions = random_tensor(storage, {rows, width}, 3);
    const TensorType y{storage, {2, rows, width}};
    const Attrs attrs{{"first", 11}};
    expect_matches_reference({Op::Embedding, {ids, table}, {y}, {-1}, attrs}, 0);
    expect_matches_reference({Op::Embedding, {ids, table, positions}, {y}, {-1}, attrs}, 0);
    const Attrs padded{{"first", 11}, {"valid", 14}};
    expect_matches_reference({Op::Embedding, {ids, table}, {y}, {-1}, padded}, 0);
  });
}

TEST(Embedding, OfShardsAddsUpToTheWhole) {
  const HostTensor ids = random_ids({3, 50}, 40, 1), table = random_tensor(DType::F32, {40, 9}, 2);
  const TensorType y{DType::F32, {3, 50, 9}};
  const HostTensor whole = run_fast({Op::Embedding, {ids, table}, {y}, {-1}, {}})[0];
  std::vector<double> sum(static_cast<size_t>(y.shape.elems()));
  for (int64_t shard = 0; shard < 4; ++shard) {
    HostTensor part(DType::F32, {10, 9});
    std::memcpy(part.bytes.data(), table.bytes.data() + shard * part.type.bytes(), part.bytes.size());
    const HostTensor got = run_fast({Op::Embedding, {ids, part}, {y}, {-1}, {{"first", 10 * shard}}})[0];
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += got.at(static_cast<int64_t>(i));
  }
  for (size_t i = 0; i < sum.size(); ++i) ASSERT_EQ(sum[i], whole.at(static_cast<int64_t>(i)));
}

Call embedding_grad(DType storage, DType acc, HostTensor ids, int64_t vocab, int64_t width) {
  const Shape rows{ids.type.shape.elems(), width};
  return {Op::EmbeddingGrad,
          {random_tensor(acc, {vocab, width}, 1), std::move(ids), random_tensor(storage, rows, 2)},
          {{acc, {vocab, width}}},
          {0},
          {}};
}

TEST(EmbeddingGrad, MatchesReferenceOverRaggedShapes) {
  for_ragged_shapes([](DType storage, int64_t rows, int64_t width) {
    expect_matches_reference(embedding_grad(storage, DType::F32, random_ids({2, rows}, 7, 1), 7, width),
                             2e-5);
    expect_matches_reference(embedding_grad(storage, DType::F32, random_ids({2, rows}, 1, 1), 1, width),
                             1e-4);
  });
}

// Ids of one, two and three bytes, and rows that leave most of the table untouched.
TEST(EmbeddingGrad, MatchesReferenceForVocabulariesOfAnySize) {
  for (const int64_t vocab : {1, 2, 255, 256, 257, 50304, 70000}) {
    expect_matches_reference(embedding_grad(DType::F32, DType::F32, random_ids({5, 200}, vocab, 3), vocab, 9),
                             5e-5);
  }
}

TEST(EmbeddingGrad, AddsToAnAccumulatorOfTheStorageType) {
  for (const DType storage : {DType::BF16, DType::F16}) {
    expect_matches_reference(embedding_grad(storage, storage, random_ids({2, 50}, 30, 1), 30, 31), 1e-4);
  }
}

TEST(EmbeddingGrad, LeavesOutIdsOutsideItsShard) {
  for_ragged_shapes([](DType storage, int64_t rows, int64_t width) {
    Call call = embedding_grad(storage, DType::F32, random_ids({2, rows}, 40, 1), 17, width);
    for (const int64_t first : {0, 11, 40}) {
      call.attrs = {{"first", first}};
      expect_matches_reference(call, 2e-5);
    }
    EXPECT_EQ(run_fast(call)[0], call.in[0]);  // no id as large as 40
  });
}

// One by one, the ones would vanish beside 2^27; their sum of sixteen does not.
TEST(EmbeddingGrad, AddsEachRowsSumToTheAccumulatorOnce) {
  for (const DType storage : kStorage) {
    for (const int64_t width : {1, 31, 200}) {
      Call call = embedding_grad(storage, DType::F32, random_ids({2, 8}, 1, 1), 1, width);
      for (int64_t i = 0; i < width; ++i) ref::set(call.in[0].arg(), i, 0x1p27);
      for (int64_t i = 0; i < 16 * width; ++i) ref::set(call.in[2].arg(), i, 1);
      for_each_target([&] {
        const HostTensor got = run_fast(call)[0];
        for (int64_t i = 0; i < width; ++i) ASSERT_EQ(got.at(i), 0x1p27 + 16) << i;
      });
    }
  }
}

TEST(PositionGrad, MatchesReferenceOverRaggedShapes) {
  for_ragged_shapes([](DType storage, int64_t rows, int64_t width) {
    const HostTensor acc = random_tensor(DType::F32, {rows + 1, width}, 1);
    const HostTensor dy = random_tensor(storage, {3, rows, width}, 2);
    expect_matches_reference({Op::PositionGrad, {acc, dy}, {acc.type}, {0}, {}}, 2e-5);
  });
}

TEST(PositionGrad, MatchesReferenceForABatchCutIntoChunks) {
  const HostTensor acc = random_tensor(DType::F32, {5, 31}, 1);
  const HostTensor dy = random_tensor(DType::F32, {70, 5, 31}, 2);
  expect_matches_reference({Op::PositionGrad, {acc, dy}, {acc.type}, {0}, {}}, 5e-5);
}

}  // namespace
}  // namespace tandem::cpu
