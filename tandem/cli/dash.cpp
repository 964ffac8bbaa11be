// tandem dash, tandem report: runs in a browser, live or as one file.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "tandem/base/file.h"
#include "tandem/cli/command.h"
#include "tandem/dash/dashboard.h"

namespace tandem::cli {
namespace {

constexpr const char* kTokenVariable = "TANDEM_DASH_TOKEN";
constexpr int kPort = 7007;
constexpr size_t kReportPoints = 2000;

std::string random_token() {
  std::ifstream random("/dev/urandom", std::ios::binary);
  unsigned char bytes[16] = {};
  if (!random.read(reinterpret_cast<char*>(bytes), sizeof(bytes)))
    throw IoError("/dev/urandom: cannot be read");
  std::string token;
  for (unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

std::vector<std::filesystem::path> roots_of(const std::vector<std::string>& words) {
  if (words.empty()) return {"runs"};
  return {words.begin(), words.end()};
}

struct DashFlags {
  std::vector<std::string> roots;
  std::string host = "127.0.0.1";
  std::optional<int> port;
};

// The first free one from the usual port on, unless one is asked for.
std::unique_ptr<http::Server> serve(const DashFlags& flags, const http::Handler& handler) {
  for (int port = flags.port.value_or(kPort);; ++port) {
    try {
      return std::make_unique<http::Server>(http::Address{flags.host, port}, handler);
    } catch (const ListenError&) {
      if (flags.port || port == kPort + 20) throw;
    }
  }
}

ExitCode run_dash(const DashFlags& flags) {
  const bool local = http::is_loopback({flags.host, 0});
  dash::Dashboard::Options options;
  const char* given = std::getenv(kTokenVariable);
  if (given != nullptr) options.token = given;
  if (!local && options.token.empty()) options.token = random_token();
  if (local) options.hosts = {"localhost", "127.0.0.1", "[::1]", flags.host};
  dash::Dashboard dashboard(roots_of(flags.roots), options);
  sigset_t ends;
  sigemptyset(&ends);
  for (int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ends, number);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);  // before the server's thread, which has the same mask
  const auto server = serve(flags, [&](const http::Request& request) { return dashboard.answer(request); });
  const std::string path = options.token.empty() ? "" : "?token=" + options.token;
  std::printf("http://%s/%s\nCtrl-C ends it.\n", server->address().text().c_str(), path.c_str());
  std::fflush(stdout);
  int number = 0;
  sigwait(&ends, &number);
  return ExitCode::Done;
}

ExitCode write_report(const std::vector<std::string>& runs, const std::string& out) {
  dash::Dashboard dashboard(roots_of(runs), {});
  write_atomically(out, dash::report_page(dashboard.everything(kReportPoints)));
  std::printf("%s\n", out.c_str());
  return ExitCode::Done;
}

}  // namespace

void add_dash(CLI::App& app, Action& action) {
  CLI::App* command = add_command(app, "dash", "watch runs in a browser", "tandem dash runs");
  auto flags = std::make_shared<DashFlags>();
  command->add_option("RUN", flags->roots, "run directories, or folders of them; runs if none is given");
  command
      ->add_option(
          "--host", flags->host,
          "where to listen; other than this machine's own address it needs the token that is printed")
      ->type_name("HOST");
  command->add_option("--port", flags->port, "7007 or the next that is free, if not given; 0 = any")
      ->type_name("N")
      ->check(whole_number(0, 65535));
  command->callback([flags, &action] { action.run = [flags] { return run_dash(*flags); }; });
}

void add_report(CLI::App& app, Action& action) {
  CLI::App* command = add_command(app, "report", "runs as one HTML file that needs nothing else",
                                  "tandem report runs/quickstart --out report.html");
  auto runs = std::make_shared<std::vector<std::string>>();
  auto out = std::make_shared<std::string>();
  command->add_option("RUN", *runs, "run directories, or folders of them")->required();
  command->add_option("--out", *out, "the file")->type_name("FILE.html")->required();
  command->callback([runs, out, &action] { action.run = [runs, out] { return write_report(*runs, *out); }; });
}

}  // namespace tandem::cli
