// Curves in a terminal, in characters of eight dots each (braille), which is enough to see a shape.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace tandem::dash {

struct TextCurve {
  std::string label;
  std::vector<double> xs, ys;  // what is not finite is left out
};

// A frame of `width` by `height` characters with axes. Each curve has dots of its own colour where `colored`.
std::string braille_plot(std::span<const TextCurve> curves, int width, int height, bool colored);

}  // namespace tandem::dash
