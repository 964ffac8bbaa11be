#include <cstdio>
#include <memory>

#include "tandem/checkpoint/inspect.h"
#include "tandem/checkpoint/reader.h"
#include "tandem/cli/checkpoint_session.h"

namespace tandem::cli {

void add_inspect(CLI::App& app, Action& action) {
  struct Flags {
    std::string checkpoint;
    std::string other;
    bool tensors = false;
    bool verify = false;
  };
  CLI::App* command =
      add_command(app, "inspect", "what a checkpoint holds, whether it is intact, and how two differ",
                  "tandem inspect runs/quickstart --compare runs/other/checkpoints/step-00000300");
  auto flags = std::make_shared<Flags>();
  command->add_option("CHECKPOINT", flags->checkpoint, "a checkpoint, or a run directory (its newest)")
      ->required();
  command->add_option("--compare", flags->other, "another one: list the tensors that differ; exit 1 if any")
      ->type_name("CHECKPOINT");
  command->add_flag("--tensors", flags->tensors, "list every tensor");
  command->add_flag("--verify", flags->verify, "read every byte and check it against the digests");
  command->callback([flags, &action] {
    action.run = [flags] {
      const Manifest manifest = find_checkpoint(flags->checkpoint);
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
      const std::vector<Difference> differences = compare(manifest, other);
      for (const Difference& item : differences)
        std::printf("%s: %s\n", item.tensor.c_str(), item.what.c_str());
      if (differences.empty()) {
        std::printf("%s\n", fmt::format("equal bit for bit: {} tensors", manifest.tensors.size()).c_str());
        return ExitCode::Done;
      }
      return ExitCode::Failed;
    };
  });
}

}  // namespace tandem::cli
