#include "tandem/hub/tensor_names.h"

#include <fmt/format.h>

namespace tandem::hub {
namespace {

class NameTable {
 public:
  NameTable(const HubFamily& family, const ModelConfig& model, std::string_view prefix)
      : family_(family), model_(model), prefix_(prefix) {}

  std::vector<ParamSources> gpt2() {
    const int64_t width = model_.width, ffn = model_.ffn_width();
    add("embed.weight", {model_.vocab, width}, {{"wte.weight"}});
    add("pos.weight", {model_.context, width}, {{"wpe.weight"}});
    for (int64_t i = 0; i < model_.layers; ++i) {
      enter("h", i);
      norm("norm1", "ln_1");
      conv("qkv", 3 * width, width, "attn.c_attn");
      conv("out", width, width, "attn.c_proj");
      norm("norm2", "ln_2");
      conv("up", ffn, width, "mlp.c_fc");
      conv("down", width, ffn, "mlp.c_proj");
    }
    leave();
    norm("norm", "ln_f");
    head();
    return std::move(list_);
  }

  std::vector<ParamSources> llama() {
    const int64_t width = model_.width, ffn = model_.ffn_width(), head_width = model_.head_width();
    const int64_t q = model_.heads * head_width, kv = model_.num_kv_heads() * head_width;
    const bool before = model_.norm_place != NormPlace::After, after = model_.norm_place != NormPlace::Before;
    const bool per_head = model_.qk_norm == QkNorm::Head;
    // Gemma's norm before the MLP has the name that llama's has not, whose is that of the one after
    // attention.
    const char* norm2 = after ? "pre_feedforward_layernorm" : "post_attention_layernorm";
    add("embed.weight", {model_.vocab, width}, {{"embed_tokens.weight"}});
    for (int64_t i = 0; i < model_.layers; ++i) {
      enter("layers", i);
      if (before) weight("norm1", {width}, {{"input_layernorm"}});
      if (family_.has(kFused)) {
        linear("qkv", width, model_.qkv_bias, {{"self_attn.qkv_proj", q + 2 * kv}});
      } else {
        linear("qkv", width, model_.qkv_bias,
               {{"self_attn.q_proj", q}, {"self_attn.k_proj", kv}, {"self_attn.v_proj", kv}});
      }
      if (model_.qk_norm != QkNorm::None) {
        weight("q_norm", {per_head ? head_width : q}, {{"self_attn.q_norm"}});
        weight("k_norm", {per_head ? head_width : kv}, {{"self_attn.k_norm"}});
      }
      linear("out", q, model_.out_bias, {{"self_attn.o_proj", width}});
      if (after) weight("post_norm1", {width}, {{"post_attention_layernorm"}});
      if (before) weight("norm2", {width}, {{norm2}});
      if (family_.has(kFused)) {
        linear("gate_up", width, model_.ffn_bias, {{"mlp.gate_up_proj", 2 * ffn}});
      } else {
        linear("gate_up", width, model_.ffn_bias, {{"mlp.gate_proj", ffn}, {"mlp.up_proj", ffn}});
      }
      linear("down", ffn, model_.ffn_bias, {{"mlp.down_proj", width}});
      if (after) weight("post_norm2", {width}, {{"post_feedforward_layernorm"}});
    }
    leave();
    weight("norm", {width}, {{"norm"}});
    head();
    return std::move(list_);
  }

 private:
  // Names of what follows are within this block.
  void enter(const char* layers, int64_t i) {
    ours_ = fmt::format("blocks.{}.", i);
    theirs_ = fmt::format("{}.{}.", layers, i);
  }
  void leave() { ours_ = theirs_ = ""; }

  void add(const std::string& name, const Shape& shape, std::vector<Source> parts) {
    for (Source& part : parts) {
      part.tensor = fmt::format("{}{}{}", prefix_, theirs_, part.tensor);
      if (part.rows == 0) part.rows = shape[0];
    }
    list_.push_back({ours_ + name, shape, std::move(parts)});
  }
  void weight(const std::string& name, const Shape& shape, std::vector<Source> parts) {
    for (Source& part : parts) part.tensor += ".weight";
    add(name + ".weight", shape, std::move(parts));
  }
  void bias(const std::string& name, const Shape& shape, std::vector<Source> parts) {
    for (Source& part : parts) part.tensor += ".bias";
    add(name + ".bias", shape, std::move(parts));
  }
  void norm(const std::string& name, const std::string& tensor) {
    weight(name, {model_.width}, {{tensor}});
    bias(name, {model_.width}, {{tensor}});
  }
  void conv(const std::string& name, int64_t rows, int64_t cols, const std::string& tensor) {
    weight(name, {rows, cols}, {{tensor, rows, true}});
    bias(name, {rows}, {{tensor, rows}});
  }
  void linear(const std::string& name, int64_t cols, bool has_bias, const std::vector<Source>& parts) {
    int64_t rows = 0;
    for (const Source& part : parts) rows += part.rows;
    weight(name, {rows, cols}, parts);
    if (has_bias) bias(name, {rows}, parts);
  }
  void head() {
    if (!model_.tied)
      list_.push_back(
          {"head.weight", {model_.vocab, model_.width}, {{std::string(kHeadTensor), model_.vocab, false}}});
  }

  const HubFamily& family_;
  const ModelConfig& model_;
  std::string_view prefix_;
  std::string ours_, theirs_;
  std::vector<ParamSources> list_;
};

}  // namespace

Shape ParamSources::tensor_shape(const Source& part) const {
  if (shape.rank() == 1) return {part.rows};
  return part.transposed ? Shape{shape[1], part.rows} : Shape{part.rows, shape[1]};
}

std::string_view name_prefix(const HubFamily& family) {
  return family.family == Family::Gpt2 ? "transformer." : "model.";
}

std::vector<ParamSources> param_sources(const HubFamily& family, const ModelConfig& model,
                                        std::string_view prefix) {
  NameTable table(family, model, prefix);
  return family.family == Family::Gpt2 ? table.gpt2() : table.llama();
}

bool is_buffer(std::string_view tensor) {
  return tensor.ends_with(".attn.bias") || tensor.ends_with(".attn.masked_bias") ||
         tensor.ends_with("rotary_emb.inv_freq");
}

}  // namespace tandem::hub
