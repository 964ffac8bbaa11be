#include "tandem/data/prepare/prepare.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "tandem/base/quantity.h"
#include "tandem/cli/command.h"
#include "tandem/data/prepare/prepare_images.h"

namespace tandem::cli {
namespace {

// "12 MiB of 3.4 GiB, 41.0 MB/s, 80 s left", on one line that is written over, a few times a second.
class ProgressLine {
 public:
  void show(int64_t done, int64_t total) {
    const auto now = Clock::now();
    if (first_ < 0) first_ = done;  // a run that goes on has done the rest before
    if (done < total && seconds(now - shown_) < 0.2) return;
    shown_ = now;
    const double elapsed = seconds(now - start_);
    const double speed = elapsed > 0 ? static_cast<double>(done - first_) / elapsed : 0;
    std::string line = fmt::format("{} of {}", format_bytes(done), format_bytes(total));
    if (speed > 0) {
      line +=
          fmt::format(", {:.1f} MB/s, {:.0f} s left", speed / 1e6, static_cast<double>(total - done) / speed);
    }
    std::fprintf(stderr, "\r%-78s", line.c_str());
    any_ = true;
  }
  void clear() const {
    if (any_) std::fprintf(stderr, "\r%78s\r", "");
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }
  Clock::time_point start_ = Clock::now(), shown_ = {};
  int64_t first_ = -1;
  bool any_ = false;
};

// As a user types it: \n and \t are the end of a line and a tab, \\ is a backslash.
std::string unescaped(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char next = text[++i];
    if (next != 'n' && next != 't' && next != '\\')
      throw ConfigError("--split-on: \\{}: expected \\n, \\t or \\\\", next);
    out += next == 'n' ? '\n' : next == 't' ? '\t' : '\\';
  }
  return out;
}

struct Flags {
  std::vector<std::string> inputs;
  std::string out, split_on, images;
  PrepareOptions options;
  PrepareImagesOptions image_options;
  bool no_eos = false;
};

ExitCode run_images(Flags& flags) {
  PrepareImagesOptions& options = flags.image_options;
  options.eval_fraction = flags.options.eval_fraction;
  options.threads = flags.options.threads;
  const bool shows = ::isatty(STDERR_FILENO) != 0;
  if (shows)
    options.progress = [](int64_t done, int64_t total) {
      std::fprintf(stderr, "\r%-78s", fmt::format("{} of {} images", done, total).c_str());
      if (done == total) std::fprintf(stderr, "\r%78s\r", "");
    };
  options.tell = [](const std::string& message) { std::fprintf(stderr, "warning: %s\n", message.c_str()); };
  const PrepareImagesStats stats = prepare_images(flags.images, flags.out, options);
  std::string line =
      fmt::format("{}: {}, {} for training and {} for evaluation in {}, {}", flags.out,
                  count_of(stats.num_classes, "class"), count_of(stats.train_images, "image"),
                  stats.eval_images, count_of(stats.num_shards, "shard"), format_bytes(stats.bytes));
  if (stats.num_broken > 0) line += fmt::format("; {} that cannot be read left out", stats.num_broken);
  std::printf("%s\n", line.c_str());
  return ExitCode::Done;
}

ExitCode run(Flags& flags) {
  if (flags.images.empty() == flags.inputs.empty())
    throw ConfigError("prepare: expected FILES of text, or --images DIR, and not both");
  if (!flags.images.empty()) return run_images(flags);
  PrepareOptions& options = flags.options;
  options.split_on = unescaped(flags.split_on);
  options.separate = !flags.no_eos;
  ProgressLine line;
  if (::isatty(STDERR_FILENO) != 0)
    options.progress = [&](int64_t done, int64_t total) { line.show(done, total); };
  options.tell = [](const std::string& message) { std::fprintf(stderr, "note: %s\n", message.c_str()); };
  PrepareStats stats;
  try {
    stats = prepare_text(flags.inputs, flags.out, options);
  } catch (...) {
    line.clear();
    throw;
  }
  line.clear();
  if (stats.num_replaced > 0) {
    std::fprintf(stderr, "warning: not all of it was UTF-8: %lld U+FFFD in place of what was not\n",
                 static_cast<long long>(stats.num_replaced));
  }
  std::printf("%s\n",
              fmt::format("{}: {}, {}, {}, {} for training and {} for evaluation in {}", flags.out,
                          count_of(stats.num_files, "file"), format_bytes(stats.input_bytes),
                          count_of(stats.num_documents, "document"), count_of(stats.train_tokens, "token"),
                          stats.eval_tokens, count_of(stats.num_shards, "shard"))
                  .c_str());
  return ExitCode::Done;
}

}  // namespace

void add_prepare(CLI::App& app, Action& action) {
  CLI::App* command = add_command(
      app, "prepare", "turn text, JSON Lines or images into memory-mapped shards",
      "tandem prepare --tokenizer path/to/model --out data/web web/*.jsonl.gz   (then data.train: data/web)");
  auto flags = std::make_shared<Flags>();
  command
      ->add_option("FILES", flags->inputs,
                   "text, .jsonl, and .gz or .zst of them; directories; patterns in quotes")
      ->take_all();
  CLI::Option* images =
      command
          ->add_option("--images", flags->images,
                       "instead of FILES: a directory with a folder of JPEG and PNG files for each class, or "
                       "with CIFAR's .bin files")
          ->type_name("DIR");
  command
      ->add_option("--size", flags->image_options.size,
                   "keep the middle square of each image as pixels, so many a side; files as they are if not "
                   "given")
      ->check(whole_number(1, 16384))
      ->type_name("N")
      ->needs(images);
  command
      ->add_flag("--skip-broken", flags->image_options.skip_broken,
                 "leave images out that cannot be read, and say which; else the first one ends it")
      ->needs(images);
  command->add_option("--out", flags->out, "the directory to make, or s3://BUCKET/PREFIX")
      ->required()
      ->type_name("DIR");
  command
      ->add_option(
          "--tokenizer", flags->options.tokenizer,
          "what a token is: bytes, a tokenizer.json, a sentencepiece .model, or a directory with one")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--field", flags->options.field, "JSON Lines: where the text is; a.b is b in a")
      ->type_name("NAME")
      ->capture_default_str();
  command
      ->add_option("--split-on", flags->split_on,
                   "text: what stands between documents, such as '\\n\\n'; a file is one if not given")
      ->type_name("TEXT");
  command->add_flag("--no-eos", flags->no_eos, "no end-of-text token between documents");
  command->add_option("--shard-tokens", flags->options.shard_tokens, "tokens in each shard")
      ->check(whole_number(1))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--eval-fraction", flags->options.eval_fraction,
                   "share kept for evaluation: of a text file its end, else of documents")
      ->type_name("X")
      ->capture_default_str();
  command->add_option("--threads", flags->options.threads, "0 = all cores")
      ->check(whole_number(0, kMostThreads))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--save-every", flags->options.save_every_s,
                   "seconds between saves of what a killed run goes on from")
      ->check(number(0))
      ->type_name("S")
      ->capture_default_str();
  command->callback([flags, &action] { action.run = [flags] { return run(*flags); }; });
}

}  // namespace tandem::cli
