// The text that a model is writing, and how fast it does: what `sample` and `bench --generate` share.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <string>
#include <vector>

#include "tandem/config/config.h"
#include "tandem/models/model.h"
#include "tandem/runtime/generation.h"

namespace tandem::cli {

// What a text that begins with `prompt` tokens and gets `tokens` more needs of a session: a cache for all of
// them, or for the context where that is shorter.
CompiledStep compile_text(const Config& config, const Backend& backend, const BuildModel& model,
                          int64_t prompt, int64_t tokens);

// The same without a cache: the whole context runs for every token.
CompiledStep compile_text_without_cache(const Config& config, const Backend& backend,
                                        const BuildModel& model);

// A text within the model's context. When it has outgrown it, its older half is forgotten, and what is left
// is read anew: positions count from its first token again.
class Text {
 public:
  Text(Session& session, const Config& config, std::vector<int32_t> prompt);

  std::span<const float> logits();  // of the next token
  void add(int32_t token) { tokens_.push_back(token); }

  double prompt_s() const { return prompt_s_; }     // until the first logits
  double tokens_s() const { return tokens_s_; }     // for those after them
  int64_t num_timed() const { return num_timed_; }  // tokens of that time

 private:
  std::span<const float> run_whole();

  Session& session_;
  const Config& config_;
  std::vector<int32_t> tokens_;
  std::unique_ptr<Generation> cached_;  // null where there is no cache
  std::vector<float> whole_;            // the last row of logits
  double prompt_s_ = -1, tokens_s_ = 0;
  int64_t num_timed_ = 0;
};

// How fast it was, against the speed at which memory is read, which is measured for it.
struct TextRate {
  int64_t num_params;
  int64_t weights_bytes;  // read for each token; 0 without a cache
  int64_t planned_bytes, cache_bytes;
  int64_t positions;  // of the cache
  double prompt_s, tokens_per_s, read_bytes_per_s;

  double bytes_per_s() const { return tokens_per_s * static_cast<double>(weights_bytes); }
  double fraction() const { return read_bytes_per_s > 0 ? bytes_per_s() / read_bytes_per_s : 0; }
  std::string text() const;
  nlohmann::json json() const;
};
TextRate rate_of(const Text& text, Session& session, const Backend& backend);

}  // namespace tandem::cli
