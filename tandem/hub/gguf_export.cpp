#include "tandem/hub/gguf_export.h"

#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/hub/gguf_names.h"
#include "tandem/hub/gguf_tokenizer.h"
#include "tandem/hub/rope_json.h"

namespace tandem::hub {
namespace {

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
  explicit GgufExport(const ExportedModel& exported)
      : exported_(exported),
        model_(exported.model()),
        architecture_(gguf_architecture_of(exported.family().model_type)) {
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
    check_caps_and_biases();
    const auto usual = static_cast<double>(model_.head_width());
    const double divided =
        model_.layers == architecture_->odd_layers ? static_cast<double>(model_.width / model_.heads) : usual;
    const double scale = model_.attention_scale == 0 ? 1 / std::sqrt(usual) : model_.attention_scale;
    if (std::fabs(scale * std::sqrt(divided) - 1) > 1e-6) refuse("model.attention_scale");
    const GatedActivation activation = model_.norm_plus_one ? GatedActivation::Gelu : GatedActivation::Silu;
    if (model_.activation != activation) refuse("model.activation");
    if (model_.norm_plus_one && (!model_.tied || model_.out_bias))
      refuse(model_.tied ? "model.out_bias" : "model.tied");
    const nlohmann::ordered_json rope = rope_object(model_.rope_scaling);
    const std::string kind = rope.value("rope_type", "none");
    const bool plain_yarn = kind == "yarn" && rope.size() == 3;
    if (kind == "longrope" || (kind == "yarn" && !plain_yarn)) refuse("model.rope_scaling");
    if (kind == "llama3" && !architecture_->turns_pairs) refuse("model.rope_scaling");
  }

  // llama.cpp's gemma2 always has both softcaps, its gemma3 none on scores; its qwen3 no bias on attention's
  // output.
  void check_caps_and_biases() const {
    const bool gemma2 = architecture_->name == "gemma2", gemma3 = architecture_->name == "gemma3";
    if (gemma2 != (model_.attention_softcap != 0)) refuse("model.attention_softcap");
    if (gemma2 && model_.logit_softcap == 0) refuse("model.logit_softcap");
    if (!gemma2 && !gemma3 && model_.logit_softcap != 0) refuse("model.logit_softcap");
    if (architecture_->name == "qwen3" && model_.out_bias) refuse("model.out_bias");
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
  const GgufArchitecture* architecture_;
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
