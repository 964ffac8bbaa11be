#include "tandem/launch/line_splitter.h"

#include <algorithm>

namespace tandem {
namespace {

constexpr size_t kLongestLine = 1 << 16;  // a longer one is cut, so that memory stays bounded
constexpr std::string_view kEraseToEnd = "\x1b[K";

}  // namespace

void LineSplitter::emit(const OnLine& on_line) {
  for (size_t at = line_.find(kEraseToEnd); at != std::string::npos; at = line_.find(kEraseToEnd, at))
    line_.erase(at, kEraseToEnd.size());
  on_line(line_);
  line_.clear();
}

void LineSplitter::feed(std::string_view bytes, const OnLine& on_line) {
  while (!bytes.empty()) {
    const size_t plain = std::min(bytes.find_first_of("\r\n"), bytes.size());
    if (plain > 0) {
      if (returned_) line_.clear();
      returned_ = false;
      const size_t taken = std::min(plain, kLongestLine - line_.size());
      line_.append(bytes.substr(0, taken));
      bytes.remove_prefix(taken);
      if (line_.size() == kLongestLine) emit(on_line);
      continue;
    }
    if (bytes.front() == '\n') {
      emit(on_line);
      returned_ = false;
    } else {
      returned_ = true;
    }
    bytes.remove_prefix(1);
  }
}

void LineSplitter::finish(const OnLine& on_line) {
  if (!line_.empty()) emit(on_line);
  returned_ = false;
}

}  // namespace tandem
