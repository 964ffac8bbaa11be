#include "tandem/base/error.h"

namespace tandem {

void fail_check(const char* file, int line, const char* condition, const std::string& detail) {
  throw BugError(fmt::format("internal error at {}:{}: {}{}{}", file, line, condition,
                             detail.empty() ? "" : ": ", detail));
}

}  // namespace tandem
