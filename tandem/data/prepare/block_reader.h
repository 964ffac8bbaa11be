// A file as blocks of about a megabyte, each of whole documents, or a piece of one document that begins and
// ends where the tokenizer may be cut. Where blocks begin and end depends on the file and the options alone,
// so that work can be shared out and taken up again at any block.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tandem/data/dataset.h"
#include "tandem/data/prepare/input_files.h"
#include "tandem/text/tokenizer.h"

namespace tandem {

struct BlockOptions {
  std::string split_on;        // text files: what stands between documents; empty: a file is one
  double eval_fraction = 0.0;  // of a text that is one document: its end
};

// Where a block begins.
struct BlockPlace {
  int64_t offset = 0;  // in the unpacked file
  int64_t record = 0;  // lines or documents before it
  bool operator==(const BlockPlace&) const = default;
};

struct Block {
  size_t file = 0;  // its number among all
  BlockPlace place, end;
  int64_t consumed = 0;  // bytes of the file on disk up to its end
  std::string_view text;
  std::shared_ptr<const void> owner;  // of the text: of several blocks at once, where it is a mapped file
  // Of a document that is cut into pieces:
  bool is_piece = false;
  Split split = Split::Train;
  bool begins = true, ends = true;
};

class BlockReader {
 public:
  virtual ~BlockReader() = default;
  virtual std::optional<Block> next() = 0;  // nothing at the end of the file
};

// From `from` on, which is the end of an earlier block, or the beginning of the file. The tokenizer outlives
// the reader. Throws DataError where the file is no text, is damaged, or has a document that is too long.
std::unique_ptr<BlockReader> read_blocks(const InputFile& file, const BlockOptions& options,
                                         const Tokenizer& tokenizer, const BlockPlace& from = {});

// The next record of a text of them, which is taken from the front with what stands behind it.
std::string_view take_record(std::string_view& text, std::string_view split_on);

}  // namespace tandem
