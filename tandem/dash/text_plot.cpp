#include "tandem/dash/text_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tandem::dash {
namespace {

constexpr int kColumns = 2, kRows = 4;  // dots of a character
constexpr uint32_t kBraille = 0x2800;
constexpr uint8_t kDots[kRows][kColumns] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
constexpr const char* kColors[] = {"\x1b[34m", "\x1b[33m", "\x1b[32m", "\x1b[35m"};

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  double share(double value) const { return high > low ? (value - low) / (high - low) : 0.5; }
};

std::string utf8(uint32_t code) {  // of three bytes, as all of braille
  return {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3f)),
          static_cast<char>(0x80 | (code & 0x3f))};
}

struct Cell {
  uint8_t dots = 0;
  size_t curve = 0;  // the last one that is seen there
};

}  // namespace

std::string braille_plot(std::span<const TextCurve> curves, int width, int height, bool colored) {
  Range x, y;
  for (const TextCurve& curve : curves) {
    for (size_t i = 0; i < curve.xs.size(); ++i) {
      if (!std::isfinite(curve.ys[i])) continue;
      x.add(curve.xs[i]);
      y.add(curve.ys[i]);
    }
  }
  if (!(x.high >= x.low)) return "nothing to plot\n";
  const std::string top = fmt::format("{:.4g}", y.high), bottom = fmt::format("{:.4g}", y.low);
  const int margin = static_cast<int>(std::max(top.size(), bottom.size()));
  const int columns = std::max(8, width - margin - 2), rows = std::max(3, height);
  std::vector<Cell> cells(static_cast<size_t>(columns) * static_cast<size_t>(rows));
  for (size_t c = 0; c < curves.size(); ++c) {
    for (size_t i = 0; i < curves[c].xs.size(); ++i) {
      if (!std::isfinite(curves[c].ys[i])) continue;
      const int across = static_cast<int>(std::lround(x.share(curves[c].xs[i]) * (columns * kColumns - 1)));
      const int down = static_cast<int>(std::lround((1 - y.share(curves[c].ys[i])) * (rows * kRows - 1)));
      Cell& cell = cells[static_cast<size_t>(down / kRows * columns + across / kColumns)];
      cell.dots |= kDots[down % kRows][across % kColumns];
      cell.curve = c;
    }
  }
  std::string text;
  for (int row = 0; row < rows; ++row) {
    text += fmt::format("{:>{}} |", row == 0 ? top : row == rows - 1 ? bottom : "", margin);
    for (int column = 0; column < columns; ++column) {
      const Cell& cell = cells[static_cast<size_t>(row * columns + column)];
      const std::string drawn = utf8(kBraille + cell.dots);
      text += colored && cell.dots != 0 ? fmt::format("{}{}\x1b[0m", kColors[cell.curve % 4], drawn) : drawn;
    }
    text += '\n';
  }
  const std::string first = fmt::format("{:.6g}", x.low), last = fmt::format("{:.6g}", x.high);
  text += fmt::format("{:>{}}  {}{:>{}}\n", "", margin, first, last,
                      std::max<int>(1, columns - static_cast<int>(first.size())));
  return text;
}

}  // namespace tandem::dash
