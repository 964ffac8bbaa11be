#include "tandem/data/token_windows.h"

#include <algorithm>
#include <numeric>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/data/text_file.h"

namespace tandem {
namespace {

class TextFile final : public TokenSource {
 public:
  explicit TextFile(const std::filesystem::path& path) : path_(path), file_(path) {
    check_text_start(path_, file_.bytes());
  }
  int64_t num_tokens() const override { return static_cast<int64_t>(file_.bytes().size()); }
  int64_t vocab() const override { return 256; }
  void read(int64_t first, int64_t count, int32_t* out) const override {
    const auto from = file_.bytes().subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    if (static_cast<size_t>(first + count) > kCheckedAtOnce)
      check_text_piece(path_, from, static_cast<size_t>(first));
    std::transform(from.begin(), from.end(), out, [](std::byte b) { return std::to_integer<int32_t>(b); });
  }

 private:
  std::filesystem::path path_;
  MappedFile file_;
};

}  // namespace

std::unique_ptr<TokenSource> open_text(const std::filesystem::path& file) {
  return std::make_unique<TextFile>(file);
}

TokenWindows::TokenWindows(std::string_view name, std::unique_ptr<TokenSource> source, int64_t context)
    : source_(std::move(source)), context_(context) {
  TANDEM_CHECK(context > 0);
  const int64_t num_tokens = source_->num_tokens();
  if (num_tokens < context + 1) {
    throw DataError(
        "{}: {} tokens are too few: one window of model.context {} takes {}; use a shorter context or more "
        "data",
        name, num_tokens, context, context + 1);
  }
  num_samples_ = (num_tokens - 1 + context - 1) / context;
}

SampleSpec TokenWindows::spec() const {
  return {.kind = SampleKind::Tokens, .context = context_, .num_classes = source_->vocab()};
}

int64_t TokenWindows::num_valid_targets(int64_t index) const {
  return std::min(context_, source_->num_tokens() - 1 - index * context_);
}

void TokenWindows::fill(int64_t index, const SampleBuffers& out) const {
  TANDEM_CHECK(index >= 0 && index < num_samples_);
  const int64_t valid = num_valid_targets(index);
  source_->read(index * context_, valid, out.tokens);
  std::copy(out.tokens + 1, out.tokens + valid, out.targets);
  source_->read(index * context_ + valid, 1, out.targets + valid - 1);
  std::fill(out.tokens + valid, out.tokens + context_, 0);
  std::fill(out.targets + valid, out.targets + context_, kNoTarget);
  if (out.segments) fill_documents(index, out);
}

// Padding belongs to the last document: no target sees it.
void TokenWindows::fill_documents(int64_t index, const SampleBuffers& out) const {
  const int64_t first = index * context_;
  std::vector<int64_t> begins;
  source_->documents(first, num_valid_targets(index), begins);
  int32_t segment = 0;
  for (size_t i = 0; i < begins.size(); ++i) {
    const int64_t begin = begins[i] - first;
    const int64_t end = i + 1 < begins.size() ? begins[i + 1] - first : context_;
    if (begin > 0) ++segment;
    std::fill(out.segments + begin, out.segments + end, segment);
    std::iota(out.positions + begin, out.positions + end, 0);
  }
}

}  // namespace tandem
