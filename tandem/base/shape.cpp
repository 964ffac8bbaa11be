#include "tandem/base/shape.h"

#include <fmt/ranges.h>

namespace tandem {

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape.dims(), ",")); }

}  // namespace tandem
