// What the user watches while training: on a terminal one line that rewrites itself, elsewhere (a file, a
// pipe, CI) a plain line now and then.
#pragma once

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "tandem/metrics/step_record.h"

namespace tandem {

// The line's text. It drops its least important parts, the bar first, to stay within `width` columns.
// `money`: spent and to go; may be empty.
std::string progress_line(const StepRecord& record, int64_t total_steps, double seconds_left, int width,
                          const std::string& money = "");

class Progress {
 public:
  struct Options {
    std::FILE* out = stderr;
    std::optional<bool> terminal;  // decided by `out` when not given
    double every_s = 10;           // plain lines: at most this long between two ...
    int64_t every_steps = 0;       // ... or this many steps, where that is given
    bool timed = false;            // plain lines: each begins with the time
  };
  Progress(int64_t total_steps, Options options);
  explicit Progress(int64_t total_steps) : Progress(total_steps, Options{}) {}
  ~Progress() { end_line(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(const StepRecord& record);
  void message(std::string_view line);  // a line above the progress line, kept on screen
  void set_note(std::string note) { note_ = std::move(note); }  // a second line, from the next one on
  void set_money(std::string money) { money_ = std::move(money); }
  void end_line();  // what others print next begins a line of its own

 private:
  using Clock = std::chrono::steady_clock;
  double seconds_left(const StepRecord& record, Clock::time_point now);
  void draw(const StepRecord& record, double left);
  void write(std::string_view text) const;
  std::string stamp() const;

  int64_t total_steps_;
  Options options_;
  bool terminal_;
  bool on_line_ = false;     // the cursor stands behind a progress line ...
  bool has_second_ = false;  // ... with a note below it
  std::string note_, money_;
  std::optional<Clock::time_point> first_time_;
  int64_t first_step_ = 0;
  Clock::time_point last_shown_;
  int64_t last_shown_step_ = 0;
};

}  // namespace tandem
