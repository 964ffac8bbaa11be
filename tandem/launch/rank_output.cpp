#include "tandem/launch/rank_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tandem/base/error.h"

namespace tandem {
namespace {

constexpr size_t kLinesKept = 12;
constexpr size_t kLongestKept = 1000;

}  // namespace

RankOutput::RankOutput(int rank, const std::filesystem::path& log, Terminal& terminal, Show out, Show err,
                       std::string prefix, LineFilter* filter)
    : prefix_(prefix.empty() ? fmt::format("[rank {}] ", rank) : std::move(prefix)),
      filter_(filter),
      log_(log),
      terminal_(terminal),
      show_{out, err} {
  log_fd_ = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log_fd_ < 0)
    throw IoError("{}: cannot write the log of rank {}: {}", log.string(), rank, std::strerror(errno));
}

RankOutput::~RankOutput() { ::close(log_fd_); }

void RankOutput::log_line(std::string_view line) {
  log_text_ += fmt::format("{}\n", line);
  flush(OutputStream::Err);
}

void RankOutput::take_line(OutputStream stream, std::string_view line) {
  log_text_.append(line).push_back('\n');
  if (show(stream) == Show::Prefixed)
    fmt::format_to(std::back_inserter(terminal_text_), "{}{}\n", prefix_, line);
  if (filter_ != nullptr) filter_->take(stream, prefix_, line);
  if (line.find_first_not_of(" \t") == std::string_view::npos) return;
  std::deque<std::string>& kept = last_[static_cast<int>(stream)];
  kept.emplace_back(line.substr(0, kLongestKept));
  if (kept.size() > kLinesKept) kept.pop_front();
}

// A full disk must not stop the training: what the log cannot take is lost, the terminal still shows it.
void RankOutput::flush(OutputStream stream) {
  std::string_view rest = log_text_;
  while (!rest.empty()) {
    const ssize_t written = ::write(log_fd_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    rest.remove_prefix(static_cast<size_t>(written));
  }
  log_text_.clear();
  terminal_.write(stream, terminal_text_);
  terminal_text_.clear();
}

void RankOutput::receive(OutputStream stream, std::string_view bytes) {
  if (show(stream) == Show::AsItIs) terminal_.write(stream, bytes);
  splitters_[static_cast<int>(stream)].feed(bytes, [&](std::string_view line) { take_line(stream, line); });
  flush(stream);
}

void RankOutput::finish(OutputStream stream) {
  splitters_[static_cast<int>(stream)].finish([&](std::string_view line) { take_line(stream, line); });
  flush(stream);
}

OutputStream RankOutput::last_stream() const {
  return last_[static_cast<int>(OutputStream::Err)].empty() ? OutputStream::Out : OutputStream::Err;
}

const std::deque<std::string>& RankOutput::last_lines() const {
  return last_[static_cast<int>(last_stream())];
}

Show RankOutput::show_of_last_lines() const { return show(last_stream()); }

}  // namespace tandem
