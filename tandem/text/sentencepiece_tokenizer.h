// A tokenizer in a .model file of sentencepiece, by its own library: unigram, BPE, words or characters. Ids
// are those of spm_encode, for any bytes, broken UTF-8 included; decoded text is that of spm_decode, and
// control pieces, which that leaves out, are written as they are called unless they are to be skipped.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tandem/text/tokenizer.h"

namespace tandem {

// What a model of this tokenizer expects around a text, of the pieces that the file calls so.
struct TextEnds {
  bool begin = true;
  bool end = false;
};

// Reads the bytes of a .model file; `origin` begins the messages of errors. Throws DataError.
std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view bytes, const std::string& origin,
                                               TextEnds ends = {});

}  // namespace tandem
