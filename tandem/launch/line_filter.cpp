#include "tandem/launch/line_filter.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tandem/base/error.h"

namespace tandem {

LineFilter::LineFilter(const std::filesystem::path& directory, std::vector<std::string> out_words,
                       std::vector<std::string> err_words)
    : words_{std::move(out_words), std::move(err_words)} {
  constexpr const char* kNames[2] = {"filtered_stdout.log", "filtered_stderr.log"};
  for (int stream : {0, 1}) {
    if (words_[stream].empty()) continue;
    const std::filesystem::path path = directory / kNames[stream];
    fds_[stream] = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fds_[stream] < 0)
      throw IoError("{}: cannot be written for filtered lines: {}", path.string(), std::strerror(errno));
  }
}

LineFilter::~LineFilter() {
  for (int fd : fds_) {
    if (fd >= 0) ::close(fd);
  }
}

// As with the ranks' logs, a full disk must not stop the training.
void LineFilter::take(OutputStream stream, std::string_view prefix, std::string_view line) {
  const int fd = fds_[static_cast<int>(stream)];
  const std::vector<std::string>& words = words_[static_cast<int>(stream)];
  const auto is_in = [&](const std::string& word) { return line.find(word) != std::string_view::npos; };
  if (fd < 0 || std::none_of(words.begin(), words.end(), is_in)) return;
  const std::string text = fmt::format("{}{}\n", prefix, line);
  [[maybe_unused]] const ssize_t written = ::write(fd, text.data(), text.size());
}

}  // namespace tandem
