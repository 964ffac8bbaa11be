// tandem status: how a run stands.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "tandem/cli/command.h"
#include "tandem/dash/run_status.h"

namespace tandem::cli {
namespace {

struct StatusFlags {
  std::string run;
  bool json = false, watch = false;
};

ExitCode show_status(const StatusFlags& flags) {
  const dash::RunFolder run(flags.run);
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  for (std::string before;;) {
    const dash::Json status = dash::run_status(run);
    const std::string text = flags.json
                                 ? status.dump(-1, ' ', false, dash::Json::error_handler_t::replace) + "\n"
                                 : dash::status_text(status);
    // On a terminal in place of what was there; elsewhere only what is new.
    if (flags.watch && terminal && !flags.json) {
      std::printf("\x1b[H\x1b[J%s", text.c_str());
    } else if (text != before) {
      std::printf("%s", text.c_str());
    }
    before = text;
    if (!flags.watch || dash::has_ended(status)) return ExitCode::Done;
    if (std::fflush(stdout) != 0) return ExitCode::Done;  // nobody reads any more
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

}  // namespace

void add_status(CLI::App& app, Action& action) {
  CLI::App* command =
      add_command(app, "status", "how a run stands: step, loss, speed, ranks, and whether it lives",
                  "tandem status runs/quickstart --watch");
  auto flags = std::make_shared<StatusFlags>();
  command->add_option("RUN", flags->run, "a run's directory")->required();
  command->add_flag("--json", flags->json, "as JSON; with --watch, a line whenever it changes");
  command->add_flag("--watch", flags->watch, "once a second, until the run ends");
  command->callback([flags, &action] { action.run = [flags] { return show_status(*flags); }; });
}

}  // namespace tandem::cli
