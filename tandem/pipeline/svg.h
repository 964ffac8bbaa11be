// The few shapes that pictures here are made of. Text is escaped: names and values are data.
#pragma once

#include <string>
#include <string_view>

namespace tandem::pipeline {

std::string xml_text(std::string_view text);

class Svg {
 public:
  void box(double x, double y, double width, double height, std::string_view fill, std::string_view stroke);
  void text(double x, double y, std::string_view text, std::string_view color = "#1f2328", int size = 12,
            std::string_view anchor = "start");
  void path(const std::string& path, std::string_view stroke, double width = 1.5);  // in the language of `d`

  std::string finish(double width, double height) const;

 private:
  std::string body_;
};

}  // namespace tandem::pipeline
