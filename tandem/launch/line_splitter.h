// Bytes in, whole lines out. A line that was redrawn with '\r' comes out once, as it last stood, so that a
// progress bar leaves one line in a log and not thousands.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace tandem {

class LineSplitter {
 public:
  using OnLine = std::function<void(std::string_view)>;  // without the newline

  void feed(std::string_view bytes, const OnLine& on_line);
  void finish(const OnLine& on_line);  // what came after the last newline, if anything

 private:
  void emit(const OnLine& on_line);

  std::string line_;
  bool returned_ = false;  // a '\r' was the last byte: what follows replaces the line, unless it is '\n'
};

}  // namespace tandem
