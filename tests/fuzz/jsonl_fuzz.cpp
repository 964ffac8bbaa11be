// Any bytes as a file of JSON Lines, packed or not: refused with one line, or documents whose tokens do not
// depend on where the file is cut into blocks. The first byte says whether the rest is read as a file, how
// that is packed, and which field has the text.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/data/prepare/encode_block.h"

namespace {

using namespace tandem;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

const std::filesystem::path& file_of_this_process() {
  static const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("tandem-fuzz-" + std::to_string(::getpid()) + ".jsonl");
  static const bool registered = std::atexit([] { std::filesystem::remove(file_of_this_process()); }) == 0;
  require(registered, "a file that is removed in the end");
  return path;
}

void write(const std::filesystem::path& path, std::string_view content) {
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  require(file != nullptr && std::fwrite(content.data(), 1, content.size(), file) == content.size() &&
              std::fclose(file) == 0,
          "a file that can be written");
}

void append(const EncodedPart& part, int32_t separator, EncodedPart& out) {
  if (part.tokens.empty()) return;
  if (!out.tokens.empty() && separator >= 0) out.tokens.push_back(separator);
  const auto base = static_cast<int64_t>(out.tokens.size());
  for (const int64_t begin : part.documents) out.documents.push_back(base + begin);
  out.tokens.insert(out.tokens.end(), part.tokens.begin(), part.tokens.end());
}

// Both blocks that a block becomes when it is cut behind a line.
void check_cut(const Block& block, const InputFile& file, const EncodeOptions& options,
               const Tokenizer& tokenizer, const EncodedBlock& whole) {
  const size_t cut = block.text.find('\n', block.text.size() / 2) + 1;
  if (cut == 0) return;
  Block first = block, second = block;
  first.text = block.text.substr(0, cut);
  second.text = block.text.substr(cut);
  second.place.record += std::count(first.text.begin(), first.text.end(), '\n');
  EncodedBlock joined = encode_block(first, file, options, tokenizer);
  const EncodedBlock rest = encode_block(second, file, options, tokenizer);
  require(joined.num_replaced + rest.num_replaced == whole.num_replaced, "as many characters are replaced");
  for (size_t split = 0; split < whole.parts.size(); ++split) {
    append(rest.parts[split], separator_of(tokenizer, options.separate), joined.parts[split]);
    require(joined.parts[split].tokens == whole.parts[split].tokens, "the same tokens however it is cut");
    require(joined.parts[split].documents == whole.parts[split].documents, "the same documents");
  }
}

void check_block(const Block& block, const InputFile& file, const EncodeOptions& options,
                 const Tokenizer& tokenizer) {
  const EncodedBlock encoded = encode_block(block, file, options, tokenizer);
  for (const EncodedPart& part : encoded.parts) {
    require(part.documents.empty() == part.tokens.empty(), "documents have tokens");
    int64_t last = -1;
    for (const int64_t begin : part.documents) {
      require(begin > last && begin < static_cast<int64_t>(part.tokens.size()), "documents begin in order");
      last = begin;
    }
    for (const int32_t token : part.tokens)
      require(token >= 0 && token < tokenizer.vocab_size(), "tokens of the vocabulary");
  }
  check_cut(block, file, options, tokenizer, encoded);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  static const auto tokenizer = make_tokenizer(std::string(kBytes));
  const std::string_view content(reinterpret_cast<const char*>(data) + 1, size - 1);
  InputFile file{.path = file_of_this_process(), .format = InputFormat::JsonLines};
  file.packing = static_cast<Packing>((data[0] & 0x3f) % 3);
  file.bytes = static_cast<int64_t>(content.size());
  EncodeOptions options;
  options.field = (data[0] & 0x80) != 0 ? "a.text" : "text";
  options.eval_fraction = 0.3;
  try {
    if ((data[0] & 0x40) == 0) {
      Block block;
      block.text = content;
      check_block(block, file, options, *tokenizer);
      return 0;
    }
    write(file.path, content);
    const auto reader = read_blocks(file, {}, *tokenizer);
    while (const auto block = reader->next()) check_block(*block, file, options, *tokenizer);
  } catch (const DataError& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos, "an error is one line");
  }
  return 0;
}
