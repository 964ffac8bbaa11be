#include "tandem/hub/gguf_export.h"

#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/hub/gguf_tokenizer.h"
#include "tandem/hub/rope_json.h"

namespace tandem::hub {
namespace {

struct Architecture {
  std::string_view model_type, name;
  int64_t window_period;  // of layers, of which the last has no window; 0: no windows
  bool turns_pairs;       // rotary positions turn neighbours, so rows of q and k change places
};

constexpr Architecture kArchitectures[] = {
    {"llama", "llama", 0, true},    {"qwen2", "qwen2", 0, false},        {"qwen3", "qwen3", 0, false},
    {"gemma2", "gemma2", 2, false}, {"gemma3_text", "gemma3", 6, false}, {"gpt2", "gpt2", 0, false},
};

struct NamePair {
  std::string_view ours;
  std::vector<std::string_view> theirs;  // one for each part, or one for all
};

const std::vector<NamePair>& names_in_block() {
  static const std::vector<NamePair> kNames = {{"norm1", {"attn_norm"}},
                                               {"qkv", {"attn_q", "attn_k", "attn_v"}},
                                               {"q_norm", {"attn_q_norm"}},
                                               {"k_norm", {"attn_k_norm"}},
                                               {"out", {"attn_output"}},
                                               {"norm1_after", {"post_attention_norm"}},
                                               {"norm2", {"ffn_norm"}},
                                               {"gate_up", {"ffn_gate", "ffn_up"}},
                                               {"up", {"ffn_up"}},
                                               {"down", {"ffn_down"}},
                                               {"norm2_after", {"post_ffw_norm"}}};
  return kNames;
}

// "blocks.3.qkv.weight", part 1 of 3: "blk.3.attn_k.weight".
std::string gguf_name(const std::string& param, size_t part, size_t num_parts) {
  const std::string suffix = param.substr(param.rfind('.'));
  const std::string stem = param.substr(0, param.size() - suffix.size());
  if (stem == "embed") return "token_embd" + suffix;
  if (stem == "pos") return "position_embd" + suffix;
  if (stem == "norm") return "output_norm" + suffix;
  if (stem == "head") return "output" + suffix;
  const size_t dot = stem.rfind('.');
  const std::string block = stem.substr(7, dot - 7), own = stem.substr(dot + 1);
  for (const NamePair& pair : names_in_block()) {
    if (pair.ours != own) continue;
    const std::string_view name =
        pair.theirs.size() == num_parts ? pair.theirs[part] : std::string_view("attn_qkv");
    return fmt::format("blk.{}.{}{}", block, name, suffix);
  }
  TANDEM_CHECK(false, "parameter '{}' has no name in GGUF", param);
  return {};
}

// A tensor of the file: rows of a parameter, which may change places or grow by one.
struct Plan {
  GgufTensor tensor;
  const ParamSources* param;
  int64_t row_begin = 0;
  int64_t head = 0;  // not 0: rows of each head change places
  float add = 0;
  std::vector<float> own;  // instead of a parameter
};

class GgufExport {
 public:
  explicit GgufExport(const ExportedModel& exported) : exported_(exported), model_(exported.model()) {
    for (const Architecture& known : kArchitectures) {
      if (known.model_type == exported.family().model_type) architecture_ = &known;
    }
    if (architecture_ == nullptr)
      throw ConfigError(
          "--format gguf: expected a llama, qwen2, qwen3, gemma2, gemma3_text or gpt2, found {}",
          exported.family().model_type);
    check_features();
  }

  GgufWriter keys(GgufType type) const {
    GgufWriter out;
    out.add("general.architecture", architecture_->name);
    out.add("general.type", "model");
    out.add("general.name", architecture_->name);
    out.add("general.file_type", type == GgufType::F16    ? 1u
                                 : type == GgufType::Q8_0 ? 7u
                                 : type == GgufType::BF16 ? 32u
                                                          : 0u);
    out.add("general.quantization_version", 2u);
    const auto add = [&](std::string_view key, auto value) {
      out.add(fmt::format("{}.{}", architecture_->name, key), value);
    };
    const auto count = [](int64_t value) { return static_cast<uint32_t>(value); };
    add("block_count", count(model_.layers));
    add("context_length", count(exported_.positions()));
    add("embedding_length", count(model_.width));
    add("feed_forward_length", count(model_.ffn_width()));
    add("attention.head_count", count(model_.heads));
    if (!model_.has(kRotary)) {
      add("attention.layer_norm_epsilon", static_cast<float>(model_.norm_eps));
    } else {
      add("attention.head_count_kv", count(model_.num_kv_heads()));
      add("attention.layer_norm_rms_epsilon", static_cast<float>(model_.norm_eps));
      add("attention.key_length", count(model_.head_width()));
      add("attention.value_length", count(model_.head_width()));
      add("vocab_size", count(model_.vocab));
      add("rope.dimension_count", count(model_.head_width()));
      add("rope.freq_base", static_cast<float>(model_.rope_theta));
      if (model_.rope_local_theta != 0)
        add("rope.freq_base_swa", static_cast<float>(model_.rope_local_theta));
      if (model_.window != 0) add("attention.sliding_window", count(model_.window));
      if (model_.attention_softcap != 0)
        add("attn_logit_softcapping", static_cast<float>(model_.attention_softcap));
      if (model_.logit_softcap != 0) add("final_logit_softcapping", static_cast<float>(model_.logit_softcap));
      const nlohmann::ordered_json rope = rope_object(model_.rope_scaling);
      const std::string kind = rope.value("rope_type", "none");
      if (kind == "linear" || kind == "yarn") {
        add("rope.scaling.type", std::string_view(kind));
        add("rope.scaling.factor", rope.at("factor").get<float>());
        if (kind == "yarn")
          add("rope.scaling.original_context_length",
              rope.at("original_max_position_embeddings").get<uint32_t>());
      }
    }
    add_tokenizer(out, exported_.kept(), model_.vocab);
    return out;
  }

  std::vector<Plan> tensors(GgufType type) const {
    std::vector<Plan> plans;
    for (const ParamSources& param : exported_.params()) {
      int64_t row = 0;
      for (size_t i = 0; i < param.parts.size(); ++i) {
        const Source& part = param.parts[i];
        Plan plan;
        plan.param = &param;
        plan.row_begin = row;
        plan.tensor.name = gguf_name(param.name, i, param.parts.size());
        plan.tensor.shape = param.shape.rank() == 1 ? Shape{part.rows} : Shape{part.rows, param.shape[1]};
        plan.tensor.type = type_of(param, type);
        const bool turned = plan.tensor.name.find(".attn_q.") != std::string::npos ||
                            plan.tensor.name.find(".attn_k.") != std::string::npos;
        if (turned && architecture_->turns_pairs) plan.head = model_.head_width();
        if (model_.norm_plus_one && plan.tensor.name.find("norm") != std::string::npos) plan.add = 1;
        plans.push_back(std::move(plan));
        row += part.rows;
      }
    }
    add_rope_factors(plans);
    return plans;
  }

  void read(const Plan& plan, const Box& rows, std::span<float> dst, ThreadPool* pool) const {
    if (!plan.own.empty()) {
      std::copy(plan.own.begin(), plan.own.end(), dst.begin());
      return;
    }
    if (plan.head == 0) {
      exported_.read_param(plan.param->name,
                           {plan.row_begin + rows.row_begin, plan.row_begin + rows.row_end, 0, rows.col_end},
                           dst, pool);
    } else {
      // Whole heads, of which some rows are wanted: row 2i + j of a head is its row j * half + i.
      const int64_t head = plan.head, half = head / 2, cols = rows.cols();
      const int64_t first = rows.row_begin / head * head, last = (rows.row_end + head - 1) / head * head;
      std::vector<float> heads(static_cast<size_t>((last - first) * cols));
      exported_.read_param(plan.param->name, {plan.row_begin + first, plan.row_begin + last, 0, cols}, heads,
                           pool);
      for (int64_t row = rows.row_begin; row < rows.row_end; ++row) {
        const int64_t in_head = row % head;
        const int64_t src = row - in_head + in_head % 2 * half + in_head / 2 - first;
        std::copy_n(heads.begin() + src * cols, cols, dst.begin() + (row - rows.row_begin) * cols);
      }
    }
    if (plan.add != 0) {
      for (float& value : dst) value += plan.add;
    }
  }

 private:
  static nlohmann::ordered_json rope_object(const std::string& scaling) {
    nlohmann::ordered_json json;
    write_rope(json, *find_family("llama"), {10000, scaling, 0, 1});
    return json["rope_scaling"].is_null() ? nlohmann::ordered_json::object() : json["rope_scaling"];
  }

  [[noreturn]] void refuse(std::string_view key) const {
    throw ConfigError("--format gguf: llama.cpp's {} has not this model's {}", architecture_->name, key);
  }

  void check_features() const {
    if (!model_.has(kRotary)) {
      if (model_.ffn_width() != 4 * model_.width) refuse("model.ffn");
      return;
    }
    std::vector<int64_t> full;
    for (int64_t layer = 0; architecture_->window_period != 0 && layer < model_.layers; ++layer) {
      if ((layer + 1) % architecture_->window_period == 0) full.push_back(layer);
    }
    if (architecture_->window_period == 0 && model_.window != 0) refuse("model.window");
    if (architecture_->window_period != 0 && (model_.window == 0 || model_.full_layers != full))
      refuse("model.full_layers");
    if (model_.attention_scale != 0) refuse("model.attention_scale");
    const GatedActivation usual = model_.norm_plus_one ? GatedActivation::Gelu : GatedActivation::Silu;
    if (model_.activation != usual) refuse("model.activation");
    if (model_.norm_plus_one && (!model_.tied || model_.out_bias))
      refuse(model_.tied ? "model.out_bias" : "model.tied");
    const nlohmann::ordered_json rope = rope_object(model_.rope_scaling);
    const std::string kind = rope.value("rope_type", "none");
    const bool plain_yarn = kind == "yarn" && rope.size() == 3;
    if (kind == "longrope" || (kind == "yarn" && !plain_yarn)) refuse("model.rope_scaling");
    if (kind == "llama3" && !architecture_->turns_pairs) refuse("model.rope_scaling");
  }

  static GgufType type_of(const ParamSources& param, GgufType type) {
    if (param.shape.rank() == 1 || param.name == "pos.weight") return GgufType::F32;
    return type == GgufType::Q8_0 && param.shape[1] % 32 != 0 ? GgufType::F16 : type;
  }

  // llama3's stretching of angles is a tensor there: what each frequency is divided by.
  void add_rope_factors(std::vector<Plan>& plans) const {
    const nlohmann::ordered_json rope = rope_object(model_.has(kRotary) ? model_.rope_scaling : "none");
    if (rope.value("rope_type", "none") != "llama3") return;
    const double factor = rope.at("factor"), low = rope.at("low_freq_factor"),
                 high = rope.at("high_freq_factor");
    const double original = rope.at("original_max_position_embeddings");
    const auto head = static_cast<double>(model_.head_width());
    Plan plan;
    plan.param = nullptr;
    for (double i = 0; i < head; i += 2) {
      const double wave = 2 * M_PI * std::pow(model_.rope_theta, i / head);
      const double smooth = (original / wave - low) / (high - low);
      plan.own.push_back(static_cast<float>(wave < original / high  ? 1
                                            : wave > original / low ? factor
                                                                    : 1 / ((1 - smooth) / factor + smooth)));
    }
    plan.tensor = {"rope_freqs.weight", GgufType::F32, {model_.head_width() / 2}};
    plans.push_back(std::move(plan));
  }

  const ExportedModel& exported_;
  const ModelConfig& model_;
  const Architecture* architecture_ = nullptr;
};

}  // namespace

int64_t export_gguf(const ExportedModel& model, const std::filesystem::path& file, GgufType type,
                    const std::function<void(int64_t, int64_t)>& told, ThreadPool* pool) {
  if (is_there(file)) throw ConfigError("{}: is there already; name another file", file.string());
  const GgufExport exported(model);
  const GgufWriter writer = exported.keys(type);
  const std::vector<Plan> plans = exported.tensors(type);
  std::vector<GgufTensor> tensors;
  int64_t total = 0;
  for (const Plan& plan : plans) {
    tensors.push_back(plan.tensor);
    total += plan.tensor.bytes();
  }
  writer.write(
      file, tensors,
      [&](size_t i, const Box& rows, std::span<float> dst) { exported.read(plans[i], rows, dst, pool); },
      [&](int64_t done) {
        if (told) told(done, total);
      });
  return total;
}

}  // namespace tandem::hub
