// Any text as a run's config, with --set of its first line where that has a `=`: refused with one line, or a
// config that is the same after it was written and read.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/config/load.h"
#include "tandem/config/print.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<Override> overrides;
  if (text.starts_with("--set ")) {
    const size_t end = std::min(text.find('\n'), text.size());
    overrides.push_back({text.substr(6, end - 6), "--set"});
    text.erase(0, end);
  }
  Config config;
  try {
    config = parse_config(text, "fuzz.yaml", overrides).config;
  } catch (const Error& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
    return 0;
  }
  const std::string written = to_yaml(config);
  if (to_json(parse_config(written, "written.yaml").config) != to_json(config)) {
    std::fprintf(stderr, "another config after it was written:\n%s", written.c_str());
    std::abort();
  }
  return 0;
}
