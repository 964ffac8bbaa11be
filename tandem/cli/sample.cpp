#include <algorithm>
#include <cstdio>
#include <memory>

#include "tandem/base/rng.h"
#include "tandem/cli/checkpoint_session.h"
#include "tandem/cli/draw.h"
#include "tandem/cli/model_source.h"
#include "tandem/models/model.h"
#include "tandem/text/decode_stream.h"
#include "tandem/text/tokenizer.h"
#include "tandem/train/compile_config.h"

namespace tandem::cli {
namespace {

// As training saw the beginning of a text; without a prompt what stands between documents, or a new line.
std::vector<int32_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& prompt) {
  std::vector<int32_t> tokens(tokenizer.before().begin(), tokenizer.before().end());
  if (!prompt.empty()) {
    tokenizer.encode(prompt, tokens);
  } else if (tokens.empty() && tokenizer.name() != kBytes && tokenizer.separator() >= 0) {
    tokens.push_back(tokenizer.separator());
  }
  if (tokens.empty()) tokenizer.encode("\n", tokens);
  return tokens;
}

}  // namespace

void add_sample(CLI::App& app, Action& action) {
  struct Flags {
    CheckpointFlags checkpoint;
    std::string prompt;
    int64_t tokens = 400;
    Drawing how;
    uint64_t seed = 1;
    bool ignore_end = false;
  };
  CLI::App* command = add_command(app, "sample", "write text with a trained language model",
                                  "tandem sample runs/quickstart --prompt \"Once upon a time\" --tokens 300");
  auto flags = std::make_shared<Flags>();
  flags->checkpoint.add_to(*command);
  command->add_option("--prompt", flags->prompt, "text to go on from")->type_name("TEXT");
  command->add_option("--tokens", flags->tokens, "how many to write")
      ->check(whole_number(0))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--temperature", flags->how.temperature, "0 = always the most likely")
      ->check(number(0))
      ->type_name("X")
      ->capture_default_str();
  command->add_option("--top-k", flags->how.top_k, "draw among the N most likely; 0 = among all")
      ->check(whole_number(0))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--top-p", flags->how.top_p,
                   "draw among the likeliest that together have this probability")
      ->check(positive_fraction())
      ->type_name("X")
      ->capture_default_str();
  command->add_flag("--ignore-end", flags->ignore_end, "go on after the token that ends a text");
  command->add_option("--seed", flags->seed, "of the random draws")
      ->check(whole_number(0))
      ->type_name("N")
      ->capture_default_str();
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      const ModelSource source(flags->checkpoint.path, flags->checkpoint.sets);
      Config config = source.config;
      if (!config.model.is_language_model())
        throw ConfigError("{}: not a language model; sample writes text", flags->checkpoint.path);
      const Backend backend = make_backend(config);
      compile_options(config, backend);  // refuses a precision that this machine lacks, as evaluate does
      config.precision = Precision::Fp32;
      config.data.documents = Documents::Joined;  // what is written is one
      ThreadPool pool(thread_count(config));
      CompiledStep step = compile_forward(action.model(config.model, 1), compile_options(config, backend),
                                          ForwardOutput::Logits);
      Session session(std::move(step), backend, pool);
      source.load(session, config);

      const auto tokenizer = make_tokenizer(source.tokenizer());
      const bool ends = !flags->ignore_end && tokenizer->name() != kBytes;
      std::vector<int32_t> text = prompt_tokens(*tokenizer, flags->prompt);
      const auto first_unknown = static_cast<size_t>(
          std::find_if(text.begin(), text.end(), [&](int32_t token) { return token >= config.model.vocab; }) -
          text.begin());
      if (first_unknown < text.size()) {
        throw ConfigError("--prompt: token {} of {} is not among the {} of the model", text[first_unknown],
                          source.tokenizer(), config.model.vocab);
      }
      std::printf("%s", flags->prompt.c_str());
      DecodeStream stream(*tokenizer, flags->prompt.empty() ? std::span<const int32_t>() : text);
      RngCursor rng(flags->seed, hash_name("sample"));
      const auto context = static_cast<size_t>(config.model.context);
      const auto vocab = static_cast<size_t>(config.model.vocab);
      std::vector<int32_t> window(context);
      for (int64_t i = 0; i < flags->tokens; ++i) {
        // When the text has outgrown the window, its older half is forgotten.
        if (text.size() >= context)
          text.erase(text.begin(), text.end() - static_cast<int64_t>(std::max<size_t>(1, context / 2)));
        std::fill(window.begin(), window.end(), 0);
        std::copy(text.begin(), text.end(), window.begin());
        session.write(session.step().eval, "tokens", std::as_bytes(std::span(window)));
        session.run_eval();
        const auto* logits =
            reinterpret_cast<const float*>(session.read(session.step().eval, "logits").data());
        const int32_t token = draw({logits + (text.size() - 1) * vocab, vocab}, flags->how, rng.uniform());
        if (ends && token == tokenizer->separator()) break;
        text.push_back(token);
        std::printf("%s", stream.add(token).c_str());
        std::fflush(stdout);
      }
      std::printf("%s\n", stream.finish().c_str());
      return ExitCode::Done;
    };
  });
}

}  // namespace tandem::cli
