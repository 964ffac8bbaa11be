// Where samples come from: one set, or several that are drawn from by weight.
#pragma once

#include <string>
#include <vector>

namespace tandem {

struct DataSource {
  std::string path;
  double weight = 1.0;    // against the others'
  std::string name = {};  // of an evaluation set that has a loss of its own; else empty
  bool operator==(const DataSource&) const = default;
};

struct DataSources {
  std::vector<DataSource> sets;  // at least one
  DataSources(const char* path) : sets{{path}} {}
  DataSources(std::string path) : sets{{std::move(path)}} {}
  explicit DataSources(std::vector<DataSource> several) : sets(std::move(several)) {}
  bool operator==(const DataSources&) const = default;

  std::string text() const {  // for messages: "a" or "a, b, c"
    std::string joined;
    for (const DataSource& set : sets) joined += (joined.empty() ? "" : ", ") + set.path;
    return joined;
  }
};

}  // namespace tandem
