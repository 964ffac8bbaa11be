#include "tandem/train/model_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "tandem/base/rng.h"
#include "tandem/base/split_float.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/checkpoint/layout.h"
#include "tandem/config/load.h"
#include "tandem/kernels/cpu/backend.h"
#include "tandem/models/model.h"
#include "tandem/runtime/host_device.h"
#include "tandem/runtime/initialize.h"
#include "tandem/train/compile_config.h"

namespace tandem {
namespace {

// Memory that only the device's own copies may touch, as a GPU's is.
class DeviceApart : public HostDevice {
 public:
  using HostDevice::HostDevice;
  bool shares_memory() const override { return false; }
};

Config tiny(std::string_view offload, std::string_view precision = "bf16") {
  const std::string yaml = fmt::format(
      "precision: {}\nthreads: 2\n"
      "model: {{family: gpt2, layers: 2, width: 16, heads: 2, context: 8, vocab: 256}}\n"
      "train: {{batch: 2, micro_batch: 2}}\nmemory: {{offload: [{}]}}\n",
      precision, offload);
  return parse_config(yaml, "config").config;
}

class Rank {
 public:
  explicit Rank(const Config& config, bool apart)
      : backend_(make_backend(apart)),
        session_(compile_config(config, compile_options(config, backend_)), backend_, pool_) {
    session_.initialize(1);
  }
  Session& session() { return session_; }

  // Other values for all that is saved, weights and optimizer state alike. Some lie half way between two bf16
  // numbers.
  void scramble() {
    for (const Persistent& item : session_.step().persistents) {
      for (const Piece& piece : item.pieces) {
        if (!item.saved) continue;
        std::vector<float> values(static_cast<size_t>(piece.box.elems()));
        const Rng rng(7, hash_name(piece.tensor));
        for (size_t i = 0; i < values.size(); ++i) values[i] = i % 5 == 0 ? 1 + 0x1p-8f : rng.uniform(i);
        write(item.slice, piece, values);
        if (item.weights && item.slice.type.dtype == DType::I16) write(*item.weights, piece, values);
      }
    }
    session_.refresh_weights();
  }

  // Every buffer that outlives a step, with padding, in the plan's order.
  std::vector<std::byte> persistents() const {
    std::vector<std::byte> all;
    for (const Persistent& item : session_.step().persistents) {
      std::vector<std::byte> bytes(static_cast<size_t>(item.slice.type.bytes()));
      session_.read_buffer(item.slice, 0, bytes);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }

 private:
  void write(const Slice& slice, const Piece& piece, std::span<const float> values) {
    const int64_t elem = dtype_bytes(slice.type.dtype);
    std::vector<std::byte> stored(values.size() * static_cast<size_t>(elem));
    round_to(stored, slice.type.dtype, std::as_bytes(values), pool_);
    session_.write_buffer(slice, piece.offset * elem, stored);
  }

  static Backend make_backend(bool apart) {
    Backend backend = cpu::make_backend();
    if (apart) {
      backend.make_device = [](ThreadPool& pool, const Communicators* comms) {
        return std::make_unique<DeviceApart>(pool, comms);
      };
    }
    return backend;
  }

  Backend backend_;
  ThreadPool pool_{2};
  Session session_;
};

// What a checkpoint has of it.
std::vector<std::byte> saved_bytes(const TensorView& view) {
  std::vector<std::byte> bytes(view.bytes.begin(), view.bytes.end());
  if (!view.in_halves()) return bytes;
  std::vector<std::byte> joined(static_cast<size_t>(view.num_bytes()));
  join_floats(bytes, view.low, joined);
  return joined;
}

std::vector<std::byte> in_order(const StateViews& state) {
  std::vector<std::byte> all;
  for (const TensorView& view : state.views) {
    const std::vector<std::byte> bytes = saved_bytes(view);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

std::map<std::string, std::vector<std::byte>> by_name(const StateViews& state) {
  std::map<std::string, std::vector<std::byte>> tensors;
  for (const TensorView& view : state.views) tensors[view.name] = saved_bytes(view);
  return tensors;
}

class ModelState : public testing::TestWithParam<const char*> {};

TEST_P(ModelState, IsTheSameWhetherTheCpuReachesItOrNot) {
  const Config config = tiny(GetParam());
  Rank near(config, /*apart=*/false), far(config, /*apart=*/true);
  EXPECT_EQ(far.persistents(), near.persistents());
  near.scramble();
  far.scramble();
  const std::vector<std::byte> expected = in_order(state_views(near.session()));
  EXPECT_EQ(in_order(state_views(far.session())), expected);
  std::vector<std::byte> staging(static_cast<size_t>(state_staging_bytes(far.session().step())));
  ASSERT_EQ(staging.size(), expected.size());
  EXPECT_EQ(in_order(state_views(far.session(), staging)), expected);
}

TEST_P(ModelState, ComesBackFromACheckpointOnAnyDevice) {
  const Config config = tiny(GetParam());
  for (bool staged : {false, true}) {
    const TemporaryDirectory folder;
    Rank writer(config, /*apart=*/true);
    writer.scramble();
    std::vector<std::byte> staging;
    if (staged) staging.resize(static_cast<size_t>(state_staging_bytes(writer.session().step())));
    {
      CheckpointWriter checkpoints(folder.path(), 0);
      CheckpointMeta meta;
      meta.step = 1;
      const StateViews state = state_views(writer.session(), staging);
      checkpoints.save(meta, state.views, staging);
      checkpoints.wait_committed();
    }
    for (bool apart : {false, true}) {
      Rank reader(config, apart);
      ASSERT_NE(reader.persistents(), writer.persistents());
      restore(reader.session(), folder.path() / checkpoint_name(1));
      EXPECT_EQ(reader.persistents(), writer.persistents()) << "staged " << staged << ", apart " << apart;
    }
  }
}

// Of fp32 numbers a bf16 run loses nothing: it saves the very file that it has read.
TEST_P(ModelState, GoesThroughEveryPrecisionUnchanged) {
  const TemporaryDirectory folder;
  Rank first(tiny(GetParam(), "fp32"), /*apart=*/false);
  first.scramble();
  const auto expected = by_name(state_views(first.session()));
  int64_t step = 0;
  const auto save = [&](Rank& rank) {
    CheckpointWriter checkpoints(folder.path(), 0);
    CheckpointMeta meta;
    meta.step = ++step;
    checkpoints.save(meta, state_views(rank.session()).views);
    return folder.path() / checkpoint_name(step);
  };
  auto saved = save(first);
  for (const char* precision : {"bf16", "fp16", "bf16", "fp32"}) {
    Rank next(tiny(GetParam(), precision), /*apart=*/step % 2 == 0);
    restore(next.session(), saved);
    EXPECT_TRUE(by_name(state_views(next.session())) == expected) << precision;
    saved = save(next);
  }
}

TEST(LoadWeights, RoundsThemAsATrainingSessionDoes) {
  for (const char* precision : {"bf16", "fp16", "fp32"}) {
    const TemporaryDirectory folder;
    const Config config = tiny("", precision);
    Rank trained(config, /*apart=*/false);
    trained.scramble();
    CheckpointMeta meta;
    meta.step = 1;
    CheckpointWriter(folder.path(), 0).save(meta, state_views(trained.session()).views);
    const Backend backend = cpu::make_backend();
    ThreadPool pool(2);
    Session forward(compile_forward(build_model(config.model, config.train.micro_batch),
                                    compile_options(config, backend), ForwardOutput::Loss),
                    backend, pool);
    load_weights(forward, read_manifest(folder.path() / checkpoint_name(1)));
    for (const Persistent& item : forward.step().persistents) {
      const auto expected = trained.session().buffer(*trained.session().step().find(item.name));
      EXPECT_TRUE(std::ranges::equal(forward.buffer(item), expected)) << precision << " " << item.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Offload, ModelState, testing::Values("", "optimizer"),
                         [](const auto& info) { return *info.param == '\0' ? "none" : info.param; });

}  // namespace
}  // namespace tandem
