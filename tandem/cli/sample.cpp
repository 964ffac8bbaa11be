#include <algorithm>
#include <cstdio>
#include <memory>

#include "tandem/base/rng.h"
#include "tandem/cli/checkpoint_session.h"
#include "tandem/cli/draw.h"
#include "tandem/cli/generate.h"
#include "tandem/cli/model_source.h"
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

void check_prompt(const std::vector<int32_t>& prompt, int64_t vocab, const std::string& tokenizer) {
  const auto unknown =
      std::find_if(prompt.begin(), prompt.end(), [&](int32_t token) { return token >= vocab; });
  if (unknown == prompt.end()) return;
  throw ConfigError("--prompt: token {} of {} is not among the {} of the model", *unknown, tokenizer, vocab);
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
    bool no_cache = false;
    bool stats = false;
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
  command->add_flag("--no-cache", flags->no_cache,
                    "run the whole context for every token instead of keeping keys and values");
  command->add_flag("--stats", flags->stats, "tell on stderr how fast it was, and of what memory");
  command->callback([flags, &action] {
    action.run = [flags, &action] {
      const ModelSource source(flags->checkpoint);
      Config config = source.config;
      if (!config.model.is_language_model())
        throw ConfigError("{}: not a language model; sample writes text", flags->checkpoint.path);
      const Backend backend = make_backend(config);
      compile_options(config, backend);  // refuses a precision that this machine lacks, as evaluate does
      config.data.documents = Documents::Joined;  // what is written is one

      const auto tokenizer = make_tokenizer(source.tokenizer());
      std::vector<int32_t> prompt = prompt_tokens(*tokenizer, flags->prompt);
      check_prompt(prompt, config.model.vocab, source.tokenizer());
      ThreadPool pool(thread_count(config));
      const auto length = static_cast<int64_t>(prompt.size());
      Session session(flags->no_cache ? compile_text_without_cache(config, backend, action.model)
                                      : compile_text(config, backend, action.model, length, flags->tokens),
                      backend, pool);
      source.load(session, config);

      std::printf("%s", flags->prompt.c_str());
      DecodeStream stream(*tokenizer, flags->prompt.empty() ? std::span<const int32_t>() : prompt);
      Text text(session, config, std::move(prompt));
      RngCursor rng(flags->seed, hash_name("sample"));
      const bool ends = !flags->ignore_end && tokenizer->name() != kBytes;
      for (int64_t i = 0; i < flags->tokens; ++i) {
        const int32_t token = draw(text.logits(), flags->how, rng.uniform());
        if (token == kNoToken)
          throw DataError("{}: after {} tokens the model gives no numbers; did its training diverge?",
                          flags->checkpoint.path, length + i);
        if (ends && token == tokenizer->separator()) break;
        text.add(token);
        std::printf("%s", stream.add(token).c_str());
        std::fflush(stdout);
      }
      std::printf("%s\n", stream.finish().c_str());
      if (flags->stats && flags->tokens > 0) {
        std::fflush(stdout);
        std::fprintf(stderr, "%s\n", rate_of(text, session, backend).text().c_str());
      }
      return ExitCode::Done;
    };
  });
}

}  // namespace tandem::cli
