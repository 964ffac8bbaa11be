#include "tandem/base/json_text.h"

#include "tandem/base/error.h"

namespace tandem {

void check_json_depth(std::string_view text, const std::string& origin) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\') {
      ++i;
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string && (c == '[' || c == '{') && ++depth > kMostJsonDepth) {
      throw DataError("{}: expected JSON nested at most {} deep, found more at byte {}: damaged or not ours",
                      origin, kMostJsonDepth, i);
    } else if (!in_string && (c == ']' || c == '}')) {
      --depth;
    }
  }
}

}  // namespace tandem
