#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "tandem/base/quantity.h"
#include "tandem/checkpoint/inspect.h"
#include "tandem/checkpoint/reader.h"
#include "tandem/cli/checkpoint_session.h"
#include "tandem/cli/compare_checkpoints.h"
#include "tandem/metrics/compare_metrics.h"

namespace tandem::cli {
namespace {

// Where both are run directories, their steps are compared too.
bool same_metrics(const std::filesystem::path& run, const std::filesystem::path& other) {
  constexpr size_t kShown = 10;
  const std::filesystem::path a = run / "metrics.jsonl", b = other / "metrics.jsonl";
  if (!std::filesystem::exists(a) || !std::filesystem::exists(b)) return true;
  const MetricsComparison result = compare_metrics(a, b);
  for (size_t i = 0; i < std::min(kShown, result.differences.size()); ++i)
    std::printf("metrics: %s\n", result.differences[i].c_str());
  if (result.differences.size() > kShown)
    std::printf("metrics: and %zu more\n", result.differences.size() - kShown);
  if (result.differences.empty())
    std::printf("%s\n",
                fmt::format("equal bit for bit: metrics of {}", count_of(result.common, "step")).c_str());
  if (result.alone > 0) std::printf("metrics: %s in one run only\n", count_of(result.alone, "step").c_str());
  return result.differences.empty();
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  struct Flags {
    std::string checkpoint;
    std::string other;
    bool tensors = false;
    bool verify = false;
    bool all = false;
  };
  CLI::App* command =
      add_command(app, "inspect", "what a checkpoint holds, whether it is intact, and how two differ",
                  "tandem inspect runs/quickstart --compare runs/other/checkpoints/step-00000300");
  auto flags = std::make_shared<Flags>();
  add_checkpoint_to(*command, flags->checkpoint);
  command
      ->add_option("--compare", flags->other,
                   "another one: the tensors that differ most, by how much, also relative to the largest "
                   "value of each; of run directories the steps too; exit 1 if any")
      ->type_name("CHECKPOINT");
  command->add_flag("--all", flags->all, "with --compare: every tensor that differs, not ten of them");
  command->add_flag("--tensors", flags->tensors, "list every tensor");
  command->add_flag("--verify", flags->verify, "read every byte and check it against the digests");
  command->callback([flags, &action] {
    action.run = [flags] {
      const Manifest manifest =
          find_checkpoint(flags->checkpoint, flags->verify ? BadOnes::Fail : BadOnes::Skip);
      if (flags->verify) {
        ThreadPool pool(0);
        tandem::verify(manifest, &pool);
      }
      if (flags->other.empty()) {
        std::printf("%s\n", describe_checkpoint(manifest, flags->tensors).c_str());
        if (flags->verify) std::printf("every byte matches its digest\n");
        return ExitCode::Done;
      }
      const Manifest other = find_checkpoint(flags->other);
      const bool same_tensors = compare_checkpoints(manifest, other, flags->all);
      const bool same_history = same_metrics(flags->checkpoint, flags->other);
      return same_tensors && same_history ? ExitCode::Done : ExitCode::Failed;
    };
  });
}

}  // namespace tandem::cli
