#include "tandem/data/held_out.h"

#include <algorithm>
#include <string>

#include "tandem/base/error.h"
#include "tandem/base/file.h"

namespace tandem {
namespace {

class Part final : public TokenSource {
 public:
  Part(std::unique_ptr<TokenSource> whole, int64_t begin, int64_t end)
      : whole_(std::move(whole)), begin_(begin), end_(end) {}
  int64_t num_tokens() const override { return end_ - begin_; }
  int64_t vocab() const override { return whole_->vocab(); }
  void read(int64_t first, int64_t count, int32_t* out) const override {
    TANDEM_CHECK(first >= 0 && begin_ + first + count <= end_);
    whole_->read(begin_ + first, count, out);
  }
  void documents(int64_t first, int64_t count, std::vector<int64_t>& out) const override {
    const size_t before = out.size();
    whole_->documents(begin_ + first, count, out);
    for (size_t i = before; i < out.size(); ++i) out[i] -= begin_;
  }

  bool knows_documents() const override { return whole_->knows_documents(); }

 private:
  std::unique_ptr<TokenSource> whole_;
  int64_t begin_, end_;
};

}  // namespace

size_t held_out_begin(std::string_view text, double fraction) {
  if (fraction <= 0.0) return text.size();
  const auto cut = static_cast<size_t>(static_cast<double>(text.size()) * (1.0 - fraction));
  const size_t line_end = text.find('\n', cut);
  if (line_end != std::string_view::npos && line_end + 1 < text.size()) return line_end + 1;
  size_t begin = cut;  // not within a character
  while (begin > 0 && begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80)
    --begin;
  return cut - begin < 4 ? begin : cut;
}

std::unique_ptr<TokenSource> part_of(const std::string& name, std::unique_ptr<TokenSource> whole, int64_t cut,
                                     Split split, int64_t context) {
  const int64_t size = whole->num_tokens(), window = context + 1;
  if (size < 2 * window) {
    throw DataError(
        "{}: {} tokens are too few to keep some apart for evaluation: with model.context {} either part "
        "takes "
        "{}; use a shorter context, more data, or another set as data.eval",
        name, size, context, window);
  }
  cut = std::min(cut, size - window);
  return split == Split::Train ? std::make_unique<Part>(std::move(whole), 0, cut)
                               : std::make_unique<Part>(std::move(whole), cut, size);
}

std::unique_ptr<TokenSource> open_part(const std::filesystem::path& file, Split split, int64_t context) {
  std::unique_ptr<TokenSource> whole = open_text(file);
  const MappedFile mapped(file);
  const std::string_view text(reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size());
  const auto cut = static_cast<int64_t>(held_out_begin(text, kHeldOutFraction));
  return part_of(file.string(), std::move(whole), cut, split, context);
}

}  // namespace tandem
