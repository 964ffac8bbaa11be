#include "tandem/data/prepare/block_reader.h"

#include <algorithm>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/quantity.h"
#include "tandem/data/held_out.h"
#include "tandem/data/prepare/unpack.h"
#include "tandem/data/text_file.h"

namespace tandem {
namespace {

constexpr size_t kBlock = size_t{1} << 20;
constexpr size_t kReadAtOnce = size_t{256} << 10;
constexpr size_t kMostAtOnce = size_t{1} << 30;  // of a document that cannot be cut

std::span<const std::byte> as_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

// Lines, or documents with something between them: a block ends behind the first such end at which it has
// the size of a block.
class RecordReader final : public BlockReader {
 public:
  RecordReader(const InputFile& file, std::string split_on, const BlockPlace& from)
      : file_(file), split_on_(std::move(split_on)), stream_(open_input(file)), place_(from) {
    stream_->skip(from.offset);
  }

  std::optional<Block> next() override {
    size_t scanned = 0;
    int64_t records = 0;
    for (;;) {
      const size_t found = rest_.find(split_on_, scanned);
      if (found != std::string::npos) {
        ++records;
        scanned = found + split_on_.size();
        if (scanned >= kBlock) return take(scanned, records);
        continue;
      }
      const size_t tail = split_on_.size() - 1;
      scanned = std::max(scanned, rest_.size() > tail ? rest_.size() - tail : 0);
      if (read_more()) continue;
      if (rest_.empty()) return std::nullopt;
      return take(rest_.size(), records + 1);
    }
  }

 private:
  bool read_more() {
    const size_t before = rest_.size();
    if (before > kMostAtOnce) {
      throw DataError("{}: a {} behind offset {} is longer than {}; split it", file_.path.string(),
                      file_.format == InputFormat::JsonLines ? "line" : "document", place_.offset,
                      format_bytes(static_cast<int64_t>(kMostAtOnce)));
    }
    rest_.resize(before + kReadAtOnce);
    const size_t count = stream_->read(rest_.data() + before, kReadAtOnce);
    rest_.resize(before + count);
    const std::string_view added = std::string_view(rest_).substr(before);
    if (count == 0) return false;
    if (place_.offset == 0 && before == 0) {
      check_text_start(file_.path, as_bytes(added));
    } else {
      check_text_piece(file_.path, as_bytes(added), static_cast<size_t>(place_.offset) + before);
    }
    return true;
  }

  Block take(size_t size, int64_t records) {
    Block block;
    block.place = place_;
    auto text = std::make_shared<std::string>(rest_.substr(0, size));
    rest_.erase(0, size);
    place_ = {place_.offset + static_cast<int64_t>(size), place_.record + records};
    block.end = place_;
    block.consumed = stream_->consumed();
    block.text = *text;
    block.owner = std::move(text);
    return block;
  }

  const InputFile file_;
  const std::string split_on_;
  std::unique_ptr<InputStream> stream_;
  BlockPlace place_;
  std::string rest_;  // read, but in no block yet
};

// A file that is one document, and its end another one, for evaluation.
class DocumentReader final : public BlockReader {
 public:
  DocumentReader(const InputFile& file, double eval_fraction, const Tokenizer& tokenizer,
                 const BlockPlace& from)
      : file_(file), tokenizer_(tokenizer), place_(from) {
    if (file.packing == Packing::None) {
      auto mapped = std::make_shared<MappedFile>(file.path);
      text_ = {reinterpret_cast<const char*>(mapped->bytes().data()), mapped->bytes().size()};
      owner_ = std::move(mapped);
    } else {
      auto unpacked = std::make_shared<std::string>(unpack());
      text_ = *unpacked;
      owner_ = std::move(unpacked);
    }
    check_text_start(file.path, as_bytes(text_));
    cut_ = held_out_begin(text_, eval_fraction);
  }

  std::optional<Block> next() override {
    const auto begin = static_cast<size_t>(place_.offset);
    if (begin >= text_.size()) return std::nullopt;
    Block block;
    block.place = place_;
    block.is_piece = true;
    block.split = begin < cut_ ? Split::Train : Split::Eval;
    const size_t first = begin < cut_ ? 0 : cut_, last = begin < cut_ ? cut_ : text_.size();
    const std::string_view document = text_.substr(first, last - first);
    const size_t end = document.size() - (begin - first) <= kBlock
                           ? last
                           : first + tokenizer_.safe_cut(document, begin - first + kBlock);
    block.begins = begin == first;
    block.ends = end == last;
    block.text = text_.substr(begin, end - begin);
    if (block.text.size() > kMostAtOnce) {
      throw DataError(
          "{}: a document of {}, of which this tokenizer has to see all at once: expected at most {}; "
          "cut it with --split-on",
          file_.path.string(), format_bytes(static_cast<int64_t>(block.text.size())),
          format_bytes(static_cast<int64_t>(kMostAtOnce)));
    }
    if (end > kCheckedAtOnce) check_text_piece(file_.path, as_bytes(block.text), begin);
    place_ = {static_cast<int64_t>(end), block.ends ? place_.record + 1 : place_.record};
    block.end = place_;
    block.consumed = file_.packing == Packing::None
                         ? place_.offset
                         : static_cast<int64_t>(static_cast<double>(file_.bytes) * static_cast<double>(end) /
                                                static_cast<double>(text_.size()));
    block.owner = owner_;
    return block;
  }

 private:
  std::string unpack() const {
    const auto stream = open_input(file_);
    std::string text;
    for (;;) {
      const size_t before = text.size();
      text.resize(before + kReadAtOnce * 4);
      const size_t count = stream->read(text.data() + before, kReadAtOnce * 4);
      text.resize(before + count);
      if (count == 0) return text;
    }
  }

  const InputFile file_;
  const Tokenizer& tokenizer_;
  BlockPlace place_;
  std::string_view text_;
  std::shared_ptr<const void> owner_;
  size_t cut_ = 0;  // where the part for evaluation begins
};

}  // namespace

std::unique_ptr<BlockReader> read_blocks(const InputFile& file, const BlockOptions& options,
                                         const Tokenizer& tokenizer, const BlockPlace& from) {
  if (file.format == InputFormat::JsonLines) return std::make_unique<RecordReader>(file, "\n", from);
  if (!options.split_on.empty()) return std::make_unique<RecordReader>(file, options.split_on, from);
  return std::make_unique<DocumentReader>(file, options.eval_fraction, tokenizer, from);
}

std::string_view take_record(std::string_view& text, std::string_view split_on) {
  const size_t end = text.find(split_on);
  const std::string_view record = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + split_on.size());
  return record;
}

}  // namespace tandem
