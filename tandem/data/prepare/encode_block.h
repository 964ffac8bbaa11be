// From a block of text or JSON Lines to the tokens of its documents.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tandem/data/prepare/block_reader.h"

namespace tandem {

struct EncodeOptions {
  std::string field = "text";  // JSON Lines: where the text is; a.b is b in a
  std::string split_on;        // text: what stands between documents
  double eval_fraction = 0.0;  // of documents, evenly spread; of a document in pieces the reader decides
  bool separate = true;        // the tokenizer's separator stands between documents
};

// The tokens of one split.
struct EncodedPart {
  std::vector<int32_t> tokens;
  std::vector<int64_t>
      documents;  // where they begin; 0 is not among them where one goes on that began before
};

struct EncodedBlock {
  std::array<EncodedPart, 2> parts;  // by Split
  int64_t num_replaced = 0;          // U+FFFD that stand for what was no UTF-8
};

// The separator that stands between documents; -1 where there is none, or they end with it anyway.
int32_t separator_of(const Tokenizer& tokenizer, bool separate);

// Between documents of the block the separator stands already; before the first one it does not. Throws
// DataError with file and line for a line that is not as expected.
EncodedBlock encode_block(const Block& block, const InputFile& file, const EncodeOptions& options,
                          const Tokenizer& tokenizer);

}  // namespace tandem
