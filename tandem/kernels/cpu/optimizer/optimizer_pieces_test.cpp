// Parameters as a data-parallel rank holds them: 1-D pieces of any length, anywhere in a flat buffer.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tandem/base/split_float.h"
#include "tandem/kernels/cpu/optimizer/optimizer_chunks.h"
#include "tandem/kernels/cpu/optimizer/optimizer_setting_test.h"
#include "tandem/kernels/cpu/pointwise/pointwise_test.h"

namespace tandem::cpu {
namespace {

constexpr int64_t kShift = 3;  // elements before the parameter: no vector of it is aligned

// Ascending places in [0, elems], with some pieces of no or one element.
std::vector<int64_t> random_cuts(int64_t elems, uint64_t seed) {
  const Rng rng(seed, 1);
  std::vector<int64_t> cuts = {0, elems};
  for (uint64_t i = 0; i < 12; ++i) {
    cuts.push_back(static_cast<int64_t>(rng.below(i, static_cast<uint64_t>(elems))));
    if (i % 4 == 0) cuts.push_back(cuts.back());
    if (i % 4 == 1) cuts.push_back(cuts.back() + 1);
  }
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

// Piece [begin, end) of a tensor that lies kShift elements into its buffer.
TensorArg piece(HostTensor& buffer, int64_t begin, int64_t end) {
  const DType dtype = buffer.type.dtype;
  return {buffer.bytes.data() + (kShift + begin) * dtype_bytes(dtype), {dtype, {end - begin}}};
}

HostTensor random_buffer(DType dtype, int64_t elems, uint64_t stream) {
  return random_tensor(dtype, {elems + 2 * kShift}, stream, dtype == DType::I16 ? 4000 : 1);
}

// The parameter's tensors after one update of its pieces between cuts.
std::vector<HostTensor> updated(const OptimizerSetting& setting, int64_t elems,
                                const std::vector<int64_t>& cuts, int num_threads) {
  std::vector<HostTensor> buffers = {random_buffer(setting.weight, elems, 1),
                                     random_buffer(setting.gradient, elems, 2)};
  if (setting.num_states() > 0) buffers.push_back(random_buffer(DType::F32, elems, 3));
  for (size_t s = 1; s < setting.num_states(); ++s) {
    buffers.push_back(random_buffer(DType::F32, elems, 3 + s));
    for (int64_t i = 0; i < elems + 2 * kShift; ++i)
      ref::set(buffers.back().arg(), i, std::abs(buffers.back().at(i)));
  }
  const DType master = setting.halves() ? DType::I16 : DType::F32;
  if (setting.masters) buffers.push_back(random_buffer(master, elems, 1));
  const std::vector<double> values = hyper_values(setting.op);
  HostTensor hyper(DType::F32, {static_cast<int64_t>(values.size())}), norm(DType::F64, {2});
  for (size_t i = 0; i < values.size(); ++i) ref::set(hyper.arg(), static_cast<int64_t>(i), values[i]);
  ref::set(norm.arg(), 0, 2.5);
  ref::set(norm.arg(), 1, 1);

  HostTensor sums(DType::F64, {2});
  for (int64_t i = 0; i < 2; ++i) ref::set(sums.arg(), i, sums_values(1)[static_cast<size_t>(i)]);
  std::vector<TensorArg> in = {hyper.arg(), norm.arg()};
  if (setting.reads_sums()) in.push_back(sums.arg());
  const size_t first = in.size();
  std::string decay;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    for (HostTensor& buffer : buffers) in.push_back(piece(buffer, cuts[i], cuts[i + 1]));
    decay += i == 0 ? "1" : ",1";
  }
  Attrs attrs{{"masters", int64_t{setting.masters}}, {"decay", decay}};
  if (setting.reads_sums()) attrs.set("slots", slots_text(cuts.size() - 1, true));
  const KernelRegistry registry = all_kernels();
  Stream stream(pool_of(num_threads));
  registry.by_name("cpu." + std::string(op_name(setting.op)))
      .run({in, std::span(in).subspan(first), attrs, {}}, stream);
  return buffers;
}

TEST(OptimizerPieces, HaveTheBitsOfTheWholeHoweverItIsCut) {
  for_each_target([] {
    for (const OptimizerSetting& setting : optimizer_settings()) {
      for (const int64_t elems : {int64_t{1}, int64_t{100}, kOptimizerChunk + 77}) {
        SCOPED_TRACE(fmt::format("{} w {} g {} masters {} elems {}", op_name(setting.op),
                                 dtype_name(setting.weight), dtype_name(setting.gradient), setting.masters,
                                 elems));
        const auto whole = updated(setting, elems, {0, elems}, 1);
        for (uint64_t seed = 0; seed < 3; ++seed) {
          const auto cuts = random_cuts(elems, seed);
          // Everything: also the elements before and after the parameter, which nobody may touch.
          ASSERT_EQ(updated(setting, elems, cuts, 1), whole) << fmt::format("{}", fmt::join(cuts, " "));
          ASSERT_EQ(updated(setting, elems, cuts, 4), whole) << fmt::format("{}", fmt::join(cuts, " "));
        }
      }
    }
  });
}

TEST(OptimizerPieces, MayBeNoneAtAll) {
  for (Op op : optimizer_ops()) {
    const bool averages = optimizer_entry(*optimizer_of(op)).averages;
    const auto buffers = updated({op, DType::F32, DType::F32, averages}, 5, {0}, 1);
    for (size_t i = 0; i < std::min<size_t>(3, buffers.size()); ++i)
      EXPECT_EQ(buffers[i], random_buffer(DType::F32, 5, i + 1)) << i;
  }
}

TEST(SquareSumsPieces, AddUpToTheWhole) {
  for_each_target([] {
    for (const DType dtype : kStorage) {
      const int64_t elems = kOptimizerChunk + 77;
      HostTensor buffer = random_buffer(dtype, elems, 1), hyper(DType::F32, {kHyperOwn}),
                 stats(DType::F64, {1}), sums(DType::F64, {3});
      ref::set(hyper.arg(), kHyperInvScale, 0.5);
      for (int64_t i = 0; i < kShift; ++i) {  // around the parameter
        ref::set(buffer.arg(), i, NAN);
        ref::set(buffer.arg(), elems + kShift + i, NAN);
      }
      double expected = 0;
      for (int64_t i = 0; i < elems; ++i) expected += std::pow(0.5 * buffer.at(kShift + i), 2);
      for (uint64_t seed = 0; seed < 3; ++seed) {
        const auto cuts = random_cuts(elems, seed);
        std::vector<TensorArg> in = {hyper.arg(), stats.arg()}, out = {sums.arg()};
        std::string slots;
        for (size_t i = 0; i + 1 < cuts.size(); ++i) {
          in.push_back(piece(buffer, cuts[i], cuts[i + 1]));
          slots += i == 0 ? "0" : ",0";
        }
        std::vector<double> workspace(cuts.size() + 2);
        Stream stream(pool_of(2));
        const Attrs attrs{{"slots", slots}, {"num_slots", 1}};
        all_kernels()
            .by_name("cpu.square_sums")
            .run({in, out, attrs, std::as_writable_bytes(std::span(workspace))}, stream);
        EXPECT_NEAR(sums.at(0) / expected, 1, 1e-12);
        EXPECT_EQ(sums.at(1), 0);
      }
    }
  });
}

}  // namespace
}  // namespace tandem::cpu
