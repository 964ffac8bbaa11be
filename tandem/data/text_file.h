// What counts as a text file, for `train` and `prepare` alike: any bytes but zero, which stands between
// documents, and no file whose first bytes say that it is something else. Text in any encoding that keeps to
// that will do.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace tandem {

// Bytes that are looked at before the first step. What lies behind them is looked at when it is read, so that
// a large file is not read twice.
inline constexpr size_t kCheckedAtOnce = size_t{64} << 20;

// Throws DataError that says what the file is, where that can be told, and what to do.
void check_text_start(const std::filesystem::path& file, std::span<const std::byte> content);

// The part of the rule for a piece of the file that begins at `offset`.
void check_text_piece(const std::filesystem::path& file, std::span<const std::byte> piece, size_t offset);

}  // namespace tandem
