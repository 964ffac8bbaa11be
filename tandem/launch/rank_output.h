// One rank's stdout and stderr on their way to its log and, where asked for, to the terminal. The last lines
// are kept: they say why a rank failed.
#pragma once

#include <deque>
#include <filesystem>
#include <string>
#include <string_view>

#include "tandem/launch/line_filter.h"
#include "tandem/launch/line_splitter.h"
#include "tandem/launch/terminal.h"

namespace tandem {

enum class Show {
  Nothing,
  AsItIs,
  Prefixed
};  // Prefixed: whole lines with the rank's prefix, "[rank 1] ..."

class RankOutput {
 public:
  RankOutput(int rank, const std::filesystem::path& log, Terminal& terminal, Show out, Show err,
             std::string prefix = "", LineFilter* filter = nullptr);
  ~RankOutput();
  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

  void log_line(std::string_view line);  // into the log alone
  void receive(OutputStream stream, std::string_view bytes);
  void finish(OutputStream stream);  // no more bytes will come

  Show show(OutputStream stream) const { return show_[static_cast<int>(stream)]; }
  // The last lines of stderr or, where there were none, of stdout; oldest first, empty ones left out.
  const std::deque<std::string>& last_lines() const;
  Show show_of_last_lines() const;
  const std::filesystem::path& log() const { return log_; }

 private:
  void take_line(OutputStream stream, std::string_view line);
  void flush(OutputStream stream);
  OutputStream last_stream() const;

  const std::string prefix_;
  LineFilter* const filter_;
  const std::filesystem::path log_;
  Terminal& terminal_;
  const Show show_[2];
  int log_fd_ = -1;
  LineSplitter splitters_[2];
  std::deque<std::string> last_[2];
  std::string log_text_;  // lines on their way out, written once for each receive
  std::string terminal_text_;
};

}  // namespace tandem
