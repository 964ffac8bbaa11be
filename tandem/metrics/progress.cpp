#include "tandem/metrics/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tandem/base/quantity.h"
#include "tandem/base/system.h"

namespace tandem {
namespace {

constexpr auto kRedrawEvery = std::chrono::milliseconds(100);
constexpr int kPlainWidth = std::numeric_limits<int>::max();

int terminal_width(std::FILE* out) {
  winsize size{};
  if (::ioctl(::fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

std::string bar(double fraction, int cells) {
  const int full = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * cells);
  return fmt::format("[{:#<{}}{:.<{}}]", "", full, "", cells - full);
}

}  // namespace

std::string progress_line(const StepRecord& record, int64_t total_steps, double seconds_left, int width,
                          const std::string& money) {
  struct Part {
    std::string text;
    int importance;
  };
  const double fraction =
      total_steps > 0 ? static_cast<double>(record.step) / static_cast<double>(total_steps) : 0;
  const int64_t memory = record.device_bytes > 0 ? record.device_bytes : record.rss_bytes;
  std::vector<Part> parts = {
      {fmt::format("step {:>{}}/{}", record.step, fmt::formatted_size("{}", total_steps), total_steps), 9},
      {width == kPlainWidth ? "" : bar(fraction, 20), 1},
      {"loss " + format_loss(record.loss), 8},
      {record.eval_loss ? "eval " + format_loss(*record.eval_loss) : "", 4},
      {fmt::format("lr {:.2e}", record.lr), 2},
      {fmt::format("{:>5} {}/s", format_count(record.per_s),
                   record.unit == CountedIn::Tokens ? "tok" : unit_name(record.unit)),
       6},
      {record.mfu > 0 ? fmt::format("MFU {:4.1f}%", 100 * record.mfu) : "", 5},
      {memory > 0 ? format_bytes(memory) : "", 3},
      {fmt::format("{} left", format_duration(seconds_left)), 7},
      {money, 7}};
  std::erase_if(parts, [](const Part& part) { return part.text.empty(); });
  while (true) {
    std::string line;
    for (const Part& part : parts) line += (line.empty() ? "" : "  ") + part.text;
    if (line.size() <= static_cast<size_t>(std::max(width, 0))) return line;
    if (parts.size() == 1) return line.substr(0, static_cast<size_t>(std::max(width, 0)));
    parts.erase(std::min_element(parts.begin(), parts.end(),
                                 [](const Part& a, const Part& b) { return a.importance < b.importance; }));
  }
}

Progress::Progress(int64_t total_steps, Options options)
    : total_steps_(total_steps),
      options_(options),
      terminal_(options.terminal.value_or(::isatty(::fileno(options.out)) == 1)) {}

void Progress::end_line() {
  if (on_line_) write(has_second_ ? "\n\n" : "\n");
  on_line_ = false;
}

// Where nobody reads it any more the run goes on.
void Progress::write(std::string_view text) const {
  std::fwrite(text.data(), 1, text.size(), options_.out);
  std::fflush(options_.out);
}

// From the mean since the first step shown, which leaves out that step's start-up.
double Progress::seconds_left(const StepRecord& record, Clock::time_point now) {
  const auto remaining = static_cast<double>(std::max<int64_t>(total_steps_ - record.step, 0));
  if (!first_time_) {
    first_time_ = now;
    first_step_ = record.step;
  }
  if (record.step == first_step_) return remaining * record.step_ms * 1e-3;
  const double elapsed = std::chrono::duration<double>(now - *first_time_).count();
  return remaining * elapsed / static_cast<double>(record.step - first_step_);
}

std::string Progress::stamp() const { return options_.timed ? utc_time() + " " : ""; }

void Progress::update(const StepRecord& record) {
  const auto now = Clock::now();
  const bool first = !first_time_.has_value();
  const double left = seconds_left(record, now);
  const bool due =
      terminal_ ? now - last_shown_ >= kRedrawEvery
                : now - last_shown_ >= std::chrono::duration<double>(options_.every_s) ||
                      (options_.every_steps > 0 && record.step - last_shown_step_ >= options_.every_steps);
  if (!first && !due && record.step != total_steps_) return;
  last_shown_ = now;
  last_shown_step_ = record.step;
  draw(record, left);
}

void Progress::draw(const StepRecord& record, double left) {
  if (terminal_) {  // one column stays free: writing the last one makes some terminals wrap
    const int width = terminal_width(options_.out) - 1;
    const std::string line = progress_line(record, total_steps_, left, width, money_);
    // The note is below; then the cursor goes up again.
    const std::string note =
        note_.empty()
            ? ""
            : fmt::format("\n{}\x1b[K\x1b[A", note_.substr(0, static_cast<size_t>(std::max(width, 0))));
    write(fmt::format("\r{}\x1b[K{}", line, note));
    on_line_ = true;
    has_second_ = !note_.empty();
  } else {
    write(stamp() + progress_line(record, total_steps_, left, kPlainWidth, money_) + "\n");
    if (!note_.empty()) write(stamp() + note_ + "\n");
  }
}

void Progress::message(std::string_view line) {
  write(fmt::format("{}{}{}\n", !on_line_ ? "" : has_second_ ? "\r\x1b[J" : "\r\x1b[K", stamp(), line));
  on_line_ = false;
}

}  // namespace tandem
