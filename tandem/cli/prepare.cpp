#include <unistd.h>
#include <cstdio>
#include <memory>

#include "tandem/base/quantity.h"
#include "tandem/cli/command.h"
#include "tandem/data/prepare.h"

namespace tandem::cli {

void add_prepare(CLI::App& app, Action& action) {
  struct Flags {
    std::vector<std::string> inputs;
    std::string out;
    PrepareOptions options;
  };
  CLI::App* command =
      add_command(app, "prepare", "turn text files into memory-mapped token shards",
                  "tandem prepare --out data/mytext book1.txt book2.txt   (then data.train: data/mytext)");
  auto flags = std::make_shared<Flags>();
  command->add_option("FILES", flags->inputs, "text files; each is a document")->required()->take_all();
  command->add_option("--out", flags->out, "the directory to make")->required()->type_name("DIR");
  command->add_option("--tokenizer", flags->options.tokenizer, "what a token is: bytes")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--shard-tokens", flags->options.shard_tokens, "tokens in each shard")
      ->check(whole_number(1))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--eval-fraction", flags->options.eval_fraction,
                   "share kept for evaluation, from the end of each file")
      ->type_name("X")
      ->capture_default_str();
  command->callback([flags, &action] {
    action.run = [flags] {
      const std::vector<std::filesystem::path> inputs(flags->inputs.begin(), flags->inputs.end());
      const bool terminal = ::isatty(STDERR_FILENO) != 0;
      if (terminal) {
        flags->options.progress = [](int64_t done, int64_t total) {
          std::fprintf(stderr, "\r%s",
                       fmt::format("{} of {}   ", format_bytes(done), format_bytes(total)).c_str());
        };
      }
      const PrepareStats stats = prepare_text(inputs, flags->out, flags->options);
      std::fprintf(stderr, "%s", terminal ? "\r" : "");
      std::printf("%s\n", fmt::format("{}: {}, {}, {} for training and {} for evaluation in {}", flags->out,
                                      count_of(stats.num_files, "file"), format_bytes(stats.input_bytes),
                                      count_of(stats.train_tokens, "token"), stats.eval_tokens,
                                      count_of(stats.num_shards, "shard"))
                              .c_str());
      return ExitCode::Done;
    };
  });
}

}  // namespace tandem::cli
