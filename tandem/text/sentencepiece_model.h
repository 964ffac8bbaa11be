// What a sentencepiece .model file has to be before its library may see it. The library believes what the
// file says: a map of characters that points outside itself, or a piece that its tables cannot hold, would
// end the program.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

inline constexpr int64_t kMostSentencepieceBytes = int64_t{256} << 20;

// Throws DataError, beginning with `origin`, that says what is wrong with it.
void check_sentencepiece_model(std::string_view bytes, const std::string& origin);

}  // namespace tandem
