#include "tandem/cli/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "tandem/base/quantity.h"
#include "tandem/base/system.h"
#include "tandem/hub/hub_dtype.h"
#include "tandem/train/compile_config.h"

namespace tandem::cli {
namespace {

// 8-bit products are for training; a forward alone is done in the 16 bits that stand beside them.
Config forward_config(Config config) {
  if (config.precision == Precision::Fp8) config.precision = Precision::Bf16;
  return config;
}

}  // namespace

CompiledStep compile_text(const Config& config, const Backend& backend, const BuildModel& model,
                          int64_t prompt, int64_t tokens) {
  const Config forward = forward_config(config);
  const int64_t positions = std::clamp<int64_t>(prompt + tokens, 1, config.model.context);
  const int64_t rows = backend.memory_bytes ? 4 * kPrefillRows : kPrefillRows;
  return compile_generation(model(forward.model, 1), compile_options(forward, backend),
                            {.prefill_rows = std::min(rows, positions), .positions = positions});
}

CompiledStep compile_text_without_cache(const Config& config, const Backend& backend,
                                        const BuildModel& model) {
  const Config forward = forward_config(config);
  return compile_forward(model(forward.model, 1), compile_options(forward, backend), ForwardOutput::Logits);
}

Text::Text(Session& session, const Config& config, std::vector<int32_t> prompt)
    : session_(session), config_(config), tokens_(std::move(prompt)) {
  if (!session.step().decode.commands.empty()) cached_ = std::make_unique<Generation>(session);
}

std::span<const float> Text::logits() {
  const double start = steady_s();
  const auto context = static_cast<size_t>(config_.model.context);
  if (tokens_.size() >= context) {
    tokens_.erase(tokens_.begin(), tokens_.end() - static_cast<ptrdiff_t>(std::max<size_t>(1, context / 2)));
    if (cached_) cached_->restart();
  }
  const std::span<const float> made =
      cached_ ? cached_->add(std::span(tokens_).subspan(static_cast<size_t>(cached_->position())))
              : run_whole();
  const double spent = steady_s() - start;
  if (prompt_s_ < 0) {
    prompt_s_ = spent;
  } else {
    tokens_s_ += spent;
    ++num_timed_;
  }
  return made;
}

std::span<const float> Text::run_whole() {
  const Executable& forward = session_.step().eval;
  std::vector<int32_t> window(static_cast<size_t>(config_.model.context));
  std::copy(tokens_.begin(), tokens_.end(), window.begin());
  session_.write(forward, "tokens", std::as_bytes(std::span(window)));
  session_.run_eval();
  const std::span<const std::byte> all = session_.read(forward, "logits");
  const DType dtype = forward.outputs[0].slice.type.dtype;
  const size_t row = all.size() / window.size();
  whole_.resize(static_cast<size_t>(config_.model.vocab));
  hub::to_floats(all.data() + (tokens_.size() - 1) * row, dtype, whole_);
  return whole_;
}

TextRate rate_of(const Text& text, Session& session, const Backend& backend) {
  const CompiledStep& step = session.step();
  TextRate rate{.num_params = step.num_params,
                .weights_bytes = weights_read(step),
                .planned_bytes = total_bytes(step.sizes),
                .cache_bytes = step.sizes[static_cast<size_t>(Arena::Cache)],
                .positions = step.positions,
                .prompt_s = text.prompt_s(),
                .tokens_per_s = 0,
                .read_bytes_per_s = backend.read_bandwidth(session.pool().num_threads())};
  if (text.num_timed() > 0) rate.tokens_per_s = static_cast<double>(text.num_timed()) / text.tokens_s();
  return rate;
}

std::string TextRate::text() const {
  std::string line = fmt::format("prompt {}, then {:.1f} tokens/s", format_duration(prompt_s), tokens_per_s);
  if (weights_bytes > 0) {
    line += fmt::format(", reading {:.1f} GB/s of weights: {:.2f} of the {:.1f} GB/s that memory gives",
                        bytes_per_s() / 1e9, fraction(), read_bytes_per_s / 1e9);
  }
  line += fmt::format("; {} planned", format_bytes(planned_bytes));
  if (cache_bytes > 0)
    line +=
        fmt::format(", {} of it for the keys and values of {} tokens", format_bytes(cache_bytes), positions);
  return line;
}

nlohmann::json TextRate::json() const {
  return {{"parameters", num_params},
          {"weights_bytes", weights_bytes},
          {"planned_bytes", planned_bytes},
          {"cache_bytes", cache_bytes},
          {"positions", positions},
          {"prompt_s", prompt_s},
          {"tokens_per_s", tokens_per_s},
          {"gb_per_s", bytes_per_s() / 1e9},
          {"read_gb_per_s", read_bytes_per_s / 1e9},
          {"fraction_of_bandwidth", fraction()}};
}

}  // namespace tandem::cli
