// Results are two products of fp32 numbers of order one; what is hard is the angle, at positions far along.
#include "tandem/kernels/cuda/kernel_test.h"

namespace tandem::cuda {
namespace {

struct Case {
  int64_t batch, tokens, heads, kv_heads, head_dim;
  double theta;
  int64_t dims = 0;
  const char* scaling = nullptr;

  Attrs attrs() const {
    Attrs attrs{{"heads", heads}, {"kv_heads", kv_heads}, {"theta", theta}};
    if (dims != 0) attrs.set("dims", dims);
    if (scaling != nullptr) attrs.set("scaling", std::string(scaling));
    return attrs;
  }
};

Call rope_call(Op op, const Case& c, HostTensor qkv) {
  const TensorType type = qkv.type;
  return {op, {std::move(qkv)}, {type}, {0}, c.attrs()};
}
HostTensor random_qkv(DType dtype, const Case& c) {
  return random_tensor(dtype, {c.batch, c.tokens, (c.heads + 2 * c.kv_heads) * c.head_dim}, 1);
}

// Head sizes that are whole groups of 16 bytes and ones that are not; one sequence a block, several, and
// several blocks of them.
constexpr Case kCases[] = {{2, 1, 1, 1, 2, 10000.0},
                           {1, 5, 3, 1, 20, 10000.0},
                           {2, 67, 4, 2, 64, 10000.0},
                           {1, 33, 2, 2, 80, 500000.0},
                           {3, 20, 32, 8, 128, 500000.0},
                           {2, 3, 1, 1, 512, 10000.0},
                           {700, 2, 1, 1, 16, 10000.0},
                           {2, 50, 4, 2, 80, 10000.0, 32},
                           {2, 50, 2, 1, 20, 10000.0, 6},
                           {1, 90, 4, 4, 64, 500000.0, 0, "linear:factor=4"},
                           {1, 90, 2, 1, 64, 10000.0, 0,
                            "yarn:factor=4,original_max_position_embeddings=16,beta_fast=2,beta_slow=0.25"},
                           {1, 40, 2, 1, 16, 10000.0, 8,
                            "longrope:short_factor=1 1.1 1.3 1.7,long_factor=1.5 2 3 4.5,"
                            "original_max_position_embeddings=16,max_position_embeddings=64"}};

TEST(Rope, MatchesReferenceOverRaggedShapes) {
  TANDEM_NEEDS_GPU();
  for (const Case& c : kCases) {
    for (const DType dtype : kStorage) {
      SCOPED_TRACE(fmt::format("B {} T {} heads {} of {} {}", c.batch, c.tokens, c.heads, c.head_dim,
                               dtype_name(dtype)));
      for (const Op op : {Op::Rope, Op::RopeGrad})
        expect_as_reference(rope_call(op, c, random_qkv(dtype, c)));
      if (HasFatalFailure()) return;
    }
  }
}

// Positions that tokens bring along, falling here, so that none is where its token stands.
TEST(Rope, TurnsByPositionsOfItsOwn) {
  TANDEM_NEEDS_GPU();
  for (const Case& c : kCases) {
    for (const Op op : {Op::Rope, Op::RopeGrad}) {
      Call call = rope_call(op, c, random_qkv(DType::F32, c));
      call.attrs.set("positions", int64_t{1});
      call.in.push_back(random_ids({c.batch, c.tokens}, c.tokens, 2));
      expect_as_reference(call);
    }
  }
}

TEST(Rope, IsExactFarAlong) {
  TANDEM_NEEDS_GPU();
  for (const Case& c : {Case{1, 2100, 1, 1, 16, 10000.0}, Case{1, 100000, 1, 1, 2, 10000.0}}) {
    expect_as_reference(rope_call(Op::Rope, c, random_qkv(DType::F32, c)));
  }
}

TEST(RopeGrad, TurnsBackWhatRopeTurned) {
  TANDEM_NEEDS_GPU();
  const Case c{1, 300, 2, 1, 48, 10000.0};
  const HostTensor original = random_qkv(DType::F32, c);
  const auto turned = run_on_gpu(rope_call(Op::Rope, c, original));
  const auto back = run_on_gpu(rope_call(Op::RopeGrad, c, turned[0]));
  expect_near(back[0], original, 4e-6, "turned there and back");
}

}  // namespace
}  // namespace tandem::cuda
