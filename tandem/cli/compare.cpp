// tandem compare: two runs beside each other.
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "tandem/cli/command.h"
#include "tandem/dash/compare_runs.h"

namespace tandem::cli {
namespace {

struct CompareFlags {
  std::string a, b, plot;
  bool json = false;
};

int terminal_width() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

ExitCode compare(const CompareFlags& flags) {
  const dash::RunFolder a(flags.a), b(flags.b);
  const dash::Json comparison = dash::compare_runs(a, b);
  if (flags.json) {
    std::printf("%s\n", comparison.dump(-1, ' ', false, dash::Json::error_handler_t::replace).c_str());
    return ExitCode::Done;
  }
  std::string plot;
  if (!flags.plot.empty()) {
    const bool terminal = ::isatty(STDOUT_FILENO) != 0;
    plot = "\n" + dash::plot_runs(a, b, flags.plot, terminal ? terminal_width() : 80, terminal);
  }
  std::printf("%s%s", dash::comparison_text(comparison).c_str(), plot.c_str());
  return ExitCode::Done;
}

}  // namespace

void add_compare(CLI::App& app, Action& action) {
  CLI::App* command =
      add_command(app, "compare", "two runs: what they reached, how fast, where configs and losses differ",
                  "tandem compare runs/quickstart runs/other --plot loss");
  auto flags = std::make_shared<CompareFlags>();
  command->add_option("A", flags->a, "a run's directory")->required();
  command->add_option("B", flags->b, "another's")->required();
  command->add_option("--plot", flags->plot, "also draw these numbers of metrics.jsonl: loss")
      ->type_name("KEY");
  command->add_flag("--json", flags->json, "as JSON");
  command->callback([flags, &action] { action.run = [flags] { return compare(*flags); }; });
}

}  // namespace tandem::cli
