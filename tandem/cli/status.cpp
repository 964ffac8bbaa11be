// tandem status: how a run stands, or a submitted job.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <thread>

#include "tandem/base/file.h"
#include "tandem/cli/command.h"
#include "tandem/cli/submitted.h"
#include "tandem/dash/run_status.h"

namespace tandem::cli {
namespace {

struct StatusFlags {
  std::string run;
  bool json = false, watch = false;
};

struct Shown {
  std::string text;
  bool ended = false;
};

std::string as_line(const dash::Json& json) {
  return json.dump(-1, ' ', false, dash::Json::error_handler_t::replace) + "\n";
}

Shown run_shown(const dash::RunFolder& run, bool json) {
  const dash::Json status = dash::run_status(run);
  return {json ? as_line(status) : dash::status_text(status), dash::has_ended(status)};
}

// What the cluster says, and under it what the run itself says where its directory is seen from here.
Shown job_shown(const Submitted& job, bool json) {
  nlohmann::ordered_json status = job_status(job);
  Shown shown{job_status_text(status), job_has_ended(status)};
  if (!status["run"].is_null()) {
    const dash::RunFolder run(status["run"].get<std::string>());
    const dash::Json of_run = dash::run_status(run);
    shown.text += dash::status_text(of_run);
    status["run_status"] = of_run;
  }
  if (json) shown.text = as_line(status);
  return shown;
}

ExitCode show(const StatusFlags& flags, const std::function<Shown()>& look, std::chrono::seconds pause) {
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  for (std::string before;;) {
    const Shown now = look();
    // On a terminal in place of what was there; elsewhere only what is new.
    if (flags.watch && terminal && !flags.json) {
      std::printf("\x1b[H\x1b[J%s", now.text.c_str());
    } else if (now.text != before) {
      std::printf("%s", now.text.c_str());
    }
    before = now.text;
    if (!flags.watch || now.ended) return ExitCode::Done;
    if (std::fflush(stdout) != 0) return ExitCode::Done;  // nobody reads any more
    std::this_thread::sleep_for(pause);
  }
}

ExitCode show_status(const StatusFlags& flags) {
  if (!is_there(flags.run)) {
    if (const auto job = submitted_if_any(flags.run))
      return show(
          flags, [&] { return job_shown(*job, flags.json); }, std::chrono::seconds(3));
  }
  const dash::RunFolder run(flags.run);
  return show(
      flags, [&] { return run_shown(run, flags.json); }, std::chrono::seconds(1));
}

}  // namespace

void add_status(CLI::App& app, Action& action) {
  CLI::App* command =
      add_command(app, "status", "how a run stands: step, loss, speed, ranks, and whether it lives",
                  "tandem status runs/quickstart --watch");
  auto flags = std::make_shared<StatusFlags>();
  command
      ->add_option("RUN", flags->run,
                   "a run's directory, or a job that tandem submit has submitted, by number or name")
      ->required();
  command->add_flag("--json", flags->json, "as JSON; with --watch, a line whenever it changes");
  command->add_flag("--watch", flags->watch, "once a second, until the run ends");
  command->callback([flags, &action] { action.run = [flags] { return show_status(*flags); }; });
}

}  // namespace tandem::cli
