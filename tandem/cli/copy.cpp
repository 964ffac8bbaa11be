#include "tandem/checkpoint/stores/copy.h"

#include <cstdio>
#include <filesystem>
#include <memory>

#include "tandem/base/file.h"
#include "tandem/base/quantity.h"
#include "tandem/checkpoint/layout.h"
#include "tandem/cli/command.h"
#include "tandem/metrics/long_work.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

// The checkpoints that a run, a checkpoint or a store of them stands for; none: it is a store of other
// things.
std::vector<Manifest> checkpoints_of(const std::string& source) {
  const std::string last = is_remote(source) ? split_address(source + "/.").first : source;
  const std::string name = fs::path(last).filename().string();
  if (is_checkpoint_name(name) || name == kLatest || name == kBest) return {read_manifest(source)};
  const StoreRef store(open_store(!is_remote(source) && fs::is_directory(fs::path(source) / "checkpoints")
                                      ? source + "/checkpoints"
                                      : source));
  std::vector<Manifest> manifests;
  for (const std::string& bundle : list_checkpoints(store)) manifests.push_back(read_manifest(store, bundle));
  std::stable_sort(manifests.begin(), manifests.end(),
                   [](const Manifest& a, const Manifest& b) { return a.sequence < b.sequence; });
  return manifests;
}

}  // namespace

void add_copy(CLI::App& app, Action& action) {
  struct Flags {
    std::string source, destination;
  };
  CLI::App* command = add_command(
      app, "copy", "copy checkpoints or a data set to another place or store, verified; goes on after a stop",
      "tandem copy runs/quickstart s3://bucket/quickstart");
  auto flags = std::make_shared<Flags>();
  command
      ->add_option("SRC", flags->source,
                   "a run, a checkpoint, or a directory or s3://BUCKET/PREFIX of either")
      ->required();
  command->add_option("DST", flags->destination, "a directory or s3://BUCKET/PREFIX, which is made")
      ->required();
  command->callback([flags, &action] {
    action.run = [flags] {
      if (!is_remote(flags->source) && !is_there(flags->source))
        throw DataError("{}: no such checkpoint, run or data set", flags->source);
      const std::vector<Manifest> checkpoints = checkpoints_of(flags->source);
      const StoreRef dst(open_store(flags->destination));
      dst->make();
      CopyReport report;
      int64_t total = 0;
      const char* what = checkpoints.empty() ? "object" : "checkpoint";
      for (const Manifest& manifest : checkpoints) {
        for (const CheckpointFile& file : manifest.files) total += file.bytes;
      }
      if (checkpoints.empty()) {
        const StoreRef src(open_store(flags->source));
        for (const StoredObject& object : src->list("")) total += object.bytes;
        if (total == 0) throw DataError("{}: holds nothing to copy", flags->source);
        LongWork work("copying " + flags->source, total);
        copy_objects(src, dst, report, [&](int64_t bytes) { work.done(bytes); });
      } else {
        LongWork work("copying " + flags->source, total);
        for (const Manifest& manifest : checkpoints)
          copy_checkpoint(manifest, dst, report, [&](int64_t bytes) { work.done(bytes); });
        dst->set_alias(kLatest, checkpoints.back().name);
      }
      std::printf("%s\n",
                  fmt::format("{}: {} copied ({}), {} there already", flags->destination,
                              count_of(report.copied, what), format_bytes(report.bytes), report.skipped)
                      .c_str());
      return ExitCode::Done;
    };
  });
}

}  // namespace tandem::cli
