#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "tandem/base/descriptor.h"
#include "tandem/base/error.h"
#include "tandem/base/system.h"
#include "tandem/launch/signals.h"
#include "tandem/pipeline/job_end.h"
#include "tandem/pipeline/process.h"
#include "tandem/pipeline/programs.h"

namespace tandem::pipeline {
namespace {

namespace fs = std::filesystem;

Descriptor opened(const fs::path& file, int flags) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
  if (fd < 0) throw IoError("{}: cannot be written: {}", file.string(), std::strerror(errno));
  return Descriptor(fd);
}

int run_words(const JobNote& note) {
  const fs::path output = note.output.empty() ? fs::path() : fs::path(note.folder) / note.output;
  // A pod that was evicted is made anew, and so begins as the first one did.
  if (!note.output.empty() && !note.keeps) fs::remove_all(output);
  const Descriptor log = opened(note.log, O_APPEND);
  const Descriptor captured = note.captures ? opened(output, O_TRUNC) : Descriptor(-1);
  ProcessSetup setup{
      note.command, note.environment, note.folder, note.captures ? captured.get() : log.get(), log.get(), -1};
  setup.command.front() = program_of(setup.command.front());
  std::signal(SIGCHLD, SIG_DFL);
  SignalReader signals;
  Processes processes(1);
  const pid_t pid = processes.start(setup, signals.outer_mask());
  for (;;) {
    pollfd poll_for{signals.fd(), POLLIN, 0};
    ::poll(&poll_for, 1, 1000);
    for (const int signal : signals.take()) {
      if (signals.asks_to_stop(signal)) signal_group(pid, SIGTERM);
    }
    if (const std::optional<int> code = processes.take_ended(pid)) return *code;
  }
}

}  // namespace

int run_job(const fs::path& note_file) {
  const std::optional<JobNote> note = read_note(note_file);
  if (!note) throw ConfigError("{}: is no note of a pipeline's job", note_file.string());
  remove_end(note_file);
  const int code = run_words(*note);
  write_end(note_file, *note, {code, hostname()});
  return code;
}

}  // namespace tandem::pipeline
