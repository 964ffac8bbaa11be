// A file of rows, one for each step, that a resumed run goes on with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

struct RowFormat {
  std::function<std::optional<int64_t>(std::string_view line)> step_of;  // nothing for a line that is no row
  std::function<bool(std::string_view line)> is_header;  // of the first line; these two where there is one
  std::function<std::string()> header;  // of a file whose own cannot be read; asked for after its rows
};

// Leaves the rows of steps up to `last_step`, in order, each once; of step 0, nothing at all. What a killed
// run left behind them goes without a word. Where rows up to there cannot be read or are not there, the
// others stay, a file that holds anything else is kept as <name>.damaged-1, -2, ..., and a sentence tells it.
// That rows are not there is told only where they are expected.
std::string keep_rows(const std::filesystem::path& path, const RowFormat& format, int64_t last_step,
                      bool expected);

}  // namespace tandem
