#include "tandem/pipeline/svg.h"

#include <fmt/format.h>

namespace tandem::pipeline {

std::string xml_text(std::string_view text) {
  std::string safe;
  for (char c : text) {
    switch (c) {
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '&': safe += "&amp;"; break;
      case '"': safe += "&quot;"; break;
      default:
        safe += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;  // XML has no way to say these
    }
  }
  return safe;
}

void Svg::box(double x, double y, double width, double height, std::string_view fill,
              std::string_view stroke) {
  body_ += fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"6\" fill=\"{}\" "
      "stroke=\"{}\"/>\n",
      x, y, width, height, fill, stroke);
}

void Svg::text(double x, double y, std::string_view text, std::string_view color, int size,
               std::string_view anchor) {
  body_ += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\" font-size=\"{}\" text-anchor=\"{}\">{}</text>\n", x, y,
      color, size, anchor, xml_text(text));
}

void Svg::path(const std::string& path, std::string_view stroke, double width) {
  body_ += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{:.1f}\"/>\n", path, stroke,
                       width);
}

std::string Svg::finish(double width, double height) const {
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 "
             "{0:.0f} {1:.0f}\" "
             "font-family=\"system-ui, sans-serif\">\n<rect width=\"100%\" height=\"100%\" "
             "fill=\"#ffffff\"/>\n",
             width, height) +
         body_ + "</svg>\n";
}

}  // namespace tandem::pipeline
