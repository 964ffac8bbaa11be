#include "tandem/hub/hub_weights.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/rng.h"
#include "tandem/base/split_float.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/hub/hub_dtype.h"
#include "tandem/hub/safetensors_writer.h"
#include "tandem/models/model.h"

namespace tandem::hub {
namespace {

float value_of(const std::string& tensor, int64_t i) {
  return Rng(7, hash_name(tensor)).uniform(static_cast<uint64_t>(i)) - 0.5f;
}

class HubWeightsTest : public testing::Test {
 protected:
  static HubConfig config_of(const std::string& json) { return parse_config_json(json, "config.json"); }

  // Files with all that the model asks for, each element a function of its place.
  void write(const HubConfig& config, DType dtype, std::string_view prefix) {
    tensors_.clear();
    for (const ParamSources& param : param_sources(*config.family, config.model, prefix)) {
      for (const Source& part : param.parts)
        tensors_.push_back({part.tensor, dtype, param.tensor_shape(part)});
    }
    write();
  }
  void write() {
    write_safetensors(directory_.path(), tensors_, 1 << 20,
                      [](const OutTensor& tensor, const Box& rows, std::span<std::byte> dst) {
                        std::vector<float> values(static_cast<size_t>(rows.elems()));
                        for (size_t i = 0; i < values.size(); ++i)
                          values[i] =
                              value_of(tensor.name, rows.row_begin * rows.cols() + static_cast<int64_t>(i));
                        from_floats(values, tensor.dtype, dst.data());
                      });
  }
  std::string refusal(const HubConfig& config) const {
    return message_of<DataError>(
        [&] { HubWeights weights(directory_.path(), *config.family, config.model); });
  }
  static std::vector<float> whole(const HubWeights& weights, const std::string& name) {
    const Shape shape = weights.find(name)->shape;
    std::vector<float> values(static_cast<size_t>(shape.elems()));
    weights.read({name, DType::F32, shape, std::as_writable_bytes(std::span(values))});
    return values;
  }

  const TemporaryDirectory directory_;
  std::vector<OutTensor> tensors_;
};

constexpr const char* kQwen =
    R"({"model_type":"qwen2","vocab_size":50,"hidden_size":24,"intermediate_size":40,
    "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"tie_word_embeddings":true})";
constexpr const char* kGpt2 =
    R"({"model_type":"gpt2","vocab_size":50,"n_embd":24,"n_layer":2,"n_head":4,"n_positions":16})";

TEST_F(HubWeightsTest, TheNamesAreThoseOfTheModelsThatAreBuilt) {
  for (const char* json : {kQwen, kGpt2}) {
    const HubConfig config = config_of(json);
    std::map<std::string, Shape> built, named;
    const Graph graph = build_model(config.model, 1);
    for (const Node& node : graph.nodes()) {
      if (node.op == Op::Param) built[node.name] = node.outputs[0].shape;
    }
    for (const ParamSources& param : param_sources(*config.family, config.model, ""))
      named[param.name] = param.shape;
    EXPECT_EQ(built, named);
  }
}

TEST_F(HubWeightsTest, JoinsQueriesKeysAndValues) {
  const HubConfig config = config_of(kQwen);
  write(config, DType::F32, "model.");
  const HubWeights weights(directory_.path(), *config.family, config.model);
  const std::vector<float> qkv = whole(weights, "blocks.1.qkv.weight");
  ASSERT_EQ(48u * 24, qkv.size());
  EXPECT_EQ(value_of("model.layers.1.self_attn.q_proj.weight", 5), qkv[5]);
  EXPECT_EQ(value_of("model.layers.1.self_attn.k_proj.weight", 0), qkv[24 * 24]);
  EXPECT_EQ(value_of("model.layers.1.self_attn.v_proj.weight", 287), qkv.back());
  EXPECT_EQ(value_of("model.layers.0.self_attn.v_proj.bias", 11), whole(weights, "blocks.0.qkv.bias")[47]);
  EXPECT_EQ(value_of("model.layers.0.mlp.up_proj.weight", 1),
            whole(weights, "blocks.0.gate_up.weight")[40 * 24 + 1]);
}

TEST_F(HubWeightsTest, TurnsTheMatricesOfGpt2) {
  const HubConfig config = config_of(kGpt2);
  for (const char* prefix : {"transformer.", ""}) {
    write(config, DType::F32, prefix);
    const HubWeights weights(directory_.path(), *config.family, config.model);
    EXPECT_EQ(prefix, weights.prefix());
    const std::vector<float> up = whole(weights, "blocks.0.up.weight");  // [96, 24], in the file [24, 96]
    EXPECT_EQ(value_of(std::string(prefix) + "h.0.mlp.c_fc.weight", 3 * 96 + 70), up[70 * 24 + 3]);
  }
}

TEST_F(HubWeightsTest, AnyBoxOfAnyTypeIsThatPartOfTheWhole) {
  for (const char* json : {kQwen, kGpt2}) {
    const HubConfig config = config_of(json);
    for (DType dtype : {DType::F32, DType::BF16, DType::F16, DType::F64}) {
      write(config, dtype, name_prefix(*config.family));
      const HubWeights weights(directory_.path(), *config.family, config.model);
      EXPECT_EQ(dtype, weights.dtype());
      const std::string name = "blocks.1.qkv.weight";
      const Shape shape = weights.find(name)->shape;
      const std::vector<float> all = whole(weights, name);
      const Box box{17, 41, 5, 19};
      std::vector<float> part(static_cast<size_t>(box.elems()));
      weights.read({name, DType::F32, shape, box, std::as_writable_bytes(std::span(part))});
      std::vector<uint16_t> high(part.size()), low(part.size()), narrow(part.size());
      TensorTarget halves{name, DType::F32, shape, box, std::as_writable_bytes(std::span(high))};
      halves.low = std::as_writable_bytes(std::span(low));
      weights.read(halves);
      weights.read({name, DType::BF16, shape, box, std::as_writable_bytes(std::span(narrow))});
      for (int64_t row = 0; row < box.rows(); ++row) {
        for (int64_t col = 0; col < box.cols(); ++col) {
          const auto i = static_cast<size_t>(row * box.cols() + col);
          const float expected = all[static_cast<size_t>((row + 17) * 24 + col + 5)];
          ASSERT_EQ(expected, part[i]);
          ASSERT_EQ(expected, join_float({high[i], static_cast<int16_t>(low[i])}));
          ASSERT_EQ(high[i], narrow[i]);
        }
      }
    }
  }
}

TEST_F(HubWeightsTest, AShorterContextTakesTheFirstPositions) {
  HubConfig config = config_of(kGpt2);
  write(config, DType::F32, "");
  config.model.context = 5;
  const HubWeights weights(directory_.path(), *config.family, config.model);
  EXPECT_EQ(value_of("wpe.weight", 5 * 24 - 1), whole(weights, "pos.weight").back());
  config.model.context = 17;
  EXPECT_NE(std::string::npos, refusal(config).find("wpe.weight"));
}

TEST_F(HubWeightsTest, NamesWhatIsMissingExtraOrMisshapen) {
  const HubConfig config = config_of(kQwen);
  write(config, DType::F32, "model.");
  const std::vector<OutTensor> good = tensors_;
  tensors_.erase(tensors_.begin() + 4);
  write();
  EXPECT_NE(std::string::npos, refusal(config).find("has no tensor 'model.layers.0.self_attn."));
  tensors_ = good;
  tensors_.push_back({"model.layers.0.self_attn.q_norm.weight", DType::F32, {6}});
  write();
  EXPECT_NE(std::string::npos,
            refusal(config).find("holds tensor 'model.layers.0.self_attn.q_norm.weight' ([6])"));
  tensors_ = good;
  tensors_.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", DType::F32, {3}});
  write();
  EXPECT_NO_THROW(HubWeights(directory_.path(), *config.family, config.model));
  tensors_ = good;
  tensors_[0].shape = Shape{51, 24};
  write();
  EXPECT_NE(std::string::npos, refusal(config).find("expected [50,24] from its config.json, found [51,24]"));
}

TEST_F(HubWeightsTest, ATiedHeadIsAbsentOrEqual) {
  const HubConfig config = config_of(kQwen);
  write(config, DType::F32, "model.");
  tensors_.push_back({"lm_head.weight", DType::F32, {50, 24}});
  write();
  EXPECT_NE(std::string::npos,
            refusal(config).find("'lm_head.weight' differs from 'model.embed_tokens.weight'"));
  HubConfig untied = config;
  untied.model.tied = false;
  EXPECT_NO_THROW(HubWeights(directory_.path(), *untied.family, untied.model));
}

}  // namespace
}  // namespace tandem::hub
