// Every error a user can cause is one line on stderr and an exit code of docs/interface.md.
#include "tandem/cli/command_line.h"

#include <cstdio>
#include <filesystem>
#include <new>
#include <span>
#include <system_error>

#include "tandem/base/clipped.h"
#include "tandem/base/file.h"
#include "tandem/base/standard_streams.h"
#include "tandem/base/system.h"
#include "tandem/cli/command.h"
#include "tandem/cli/unexpected.h"
#include "tandem/comm/launch_notes.h"
#include "tandem/kernels/cpu/cpu_features.h"
#include "tandem/kernels/cuda/device/devices.h"

namespace tandem::cli {
namespace {

std::string version() {
  std::string cuda = "cuda not built";
  if (cuda::is_built()) {
    const std::vector<cuda::Device> devices = cuda::devices();
    cuda =
        fmt::format("cuda {}, {}", cuda::build_version(), devices.empty() ? "no GPU" : devices.front().name);
  }
  return fmt::format("tandem {} (cpu {}; {})", TANDEM_VERSION, cpu::isa_name(cpu::selected_isa()), cuda);
}

int usage_error(const std::string& message) {
  std::fprintf(stderr, "tandem: error: %s\n", clipped(message).c_str());
  return static_cast<int>(ExitCode::BadUsage);
}

// What the user calls it: advice and examples that are typed as they stand must name it.
std::string program_name(int argc, char** argv) {
  const std::string name = argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "";
  return name.empty() ? "tandem" : name;
}

int run(int argc, char** argv, const BuildModel& model) {
  Action action;
  action.model = model;
  action.start_s = steady_s();
  CLI::App app(
      "Tandem: a training system for transformers and CNNs. A step is compiled once; planning,\n"
      "running and resuming all use that same compiled step.",
      program_name(argc, argv));
  app.set_version_flag("--version", version);
  app.require_subcommand(0, 1);
  app.option_defaults()
      ->take_last();  // a flag given twice means the second, so that scripts can have defaults
  app.footer(fmt::format("Example:\n  {} train configs/quickstart.yaml", app.get_name()));
  add_train(app, action);
  add_launch(app, action);
  add_plan(app, action);
  add_explain(app, action);
  add_profile(app, action);
  add_bench(app, action);
  add_prepare(app, action);
  add_evaluate(app, action);
  add_sample(app, action);
  add_inspect(app, action);
  add_copy(app, action);
  add_gc(app, action);
  add_import(app, action);
  add_export(app, action);
  add_info(app, action);
  add_tokenize(app, action);
  add_convert(app, action);
  add_chaos(app, action);
  add_dash(app, action);
  add_doctor(app, action);
  add_calibrate(app, action);
  add_compare(app, action);
  add_status(app, action);
  add_report(app, action);
  add_submit(app, action);
  add_logs(app, action);
  add_cancel(app, action);
  add_pipeline(app, action);
  add_sweep(app, action);

  try {
    app.parse(take_program(argc, argv, action), argv);
  } catch (const CLI::ExtrasError&) {
    std::vector<std::string> extra = app.remaining(true);
    return usage_error(explain_unexpected(app, extra.empty() ? "" : extra.front(),
                                          std::span(argv, static_cast<size_t>(argc))));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return usage_error(error.what());
  }
  if (!action.run) {
    std::printf("%s", app.help().c_str());
    return static_cast<int>(ExitCode::BadUsage);
  }
  const ExitCode code = action.run();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw IoError("standard output cannot be written to; what was to be shown is lost");
  return static_cast<int>(code);
}

int run_to_an_exit_code(int argc, char** argv, const BuildModel& model) {
  try {
    return run(argc, argv, model);
  } catch (const Error& error) {
    if (dynamic_cast<const CommError*>(&error) != nullptr) tell_lost_peer();
    std::fprintf(stderr, "tandem: error: %s\n", clipped(error.what()).c_str());
    return static_cast<int>(error.exit_code());
  } catch (const std::filesystem::filesystem_error& error) {
    std::fprintf(stderr, "tandem: error: %s: %s\n", error.path1().c_str(), error.code().message().c_str());
    return static_cast<int>(ExitCode::Failed);
  } catch (const std::bad_alloc&) {
    std::fprintf(
        stderr,
        "tandem: error: memory: the system has no more to give; `tandem plan` shows what a config needs: use "
        "a smaller one, or end other programs\n");
    return static_cast<int>(ExitCode::DoesNotFit);
  } catch (const std::system_error& error) {
    const bool of_threads = error.code() == std::errc::resource_unavailable_try_again;
    std::fprintf(stderr, "tandem: error: %s: %s%s\n", of_threads ? "threads: cannot start another" : "system",
                 error.code().message().c_str(),
                 of_threads ? "; set threads and data.workers lower, or raise the limit (ulimit -u)" : "");
    return static_cast<int>(ExitCode::Failed);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tandem: %s (this is a bug; please report it)\n", error.what());
    return static_cast<int>(ExitCode::Failed);
  }
}

}  // namespace
}  // namespace tandem::cli

namespace tandem {

int run_command_line(int argc, char** argv, const BuildModel& model) {
  open_standard_streams();
  survive_file_size_limit();
  const int code = cli::run_to_an_exit_code(argc, argv, model);
  if (code == static_cast<int>(ExitCode::BadUsage) || code == static_cast<int>(ExitCode::DoesNotFit) ||
      code == static_cast<int>(ExitCode::BadData))
    tell_final();  // to a launcher: a restart would change nothing
  return code;
}

}  // namespace tandem
