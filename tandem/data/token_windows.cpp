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

TokenWindows::TokenWindows(std::string_view name, std::unique_ptr<TokenSource> source, int64_t context,
                           bool separate_documents)
    : source_(std::move(source)), context_(context), separate_documents_(separate_documents) {
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
  return {.kind = SampleKind::Tokens,
          .context = context_,
          .num_classes = source_->vocab(),
          .documents = separate_documents_};
}

int64_t TokenWindows::num_used(int64_t index) const {
  return std::min(context_, source_->num_tokens() - 1 - index * context_);
}

std::vector<int64_t> TokenWindows::documents_of(int64_t index) const {
  const int64_t first = index * context_;
  std::vector<int64_t> begins;
  source_->documents(first, num_used(index) + 1, begins);
  for (int64_t& begin : begins) begin -= first;
  return begins;
}

int64_t TokenWindows::num_valid_targets(int64_t index) const {
  int64_t count = num_used(index);
  if (!separate_documents_) return count;
  for (const int64_t begin : documents_of(index)) count -= begin > 0 ? 1 : 0;
  return count;
}

void TokenWindows::fill(int64_t index, const SampleBuffers& out) const {
  TANDEM_CHECK(index >= 0 && index < num_samples_);
  const int64_t used = num_used(index);
  source_->read(index * context_, used, out.tokens);
  std::copy(out.tokens + 1, out.tokens + used, out.targets);
  source_->read(index * context_ + used, 1, out.targets + used - 1);
  std::fill(out.tokens + used, out.tokens + context_, 0);
  std::fill(out.targets + used, out.targets + context_, kNoTarget);
  if (separate_documents_) separate(index, out);
}

// Padding belongs to the last document: no target sees it.
void TokenWindows::separate(int64_t index, const SampleBuffers& out) const {
  const int64_t used = num_used(index);
  const std::vector<int64_t> begins = documents_of(index);
  int32_t segment = 0;
  for (size_t i = 0; i < begins.size(); ++i) {
    const int64_t begin = begins[i];
    if (begin == 0) continue;
    out.targets[begin - 1] = kNoTarget;
    if (begin == used) return;  // its first token is a target here, no more
    const int64_t end = i + 1 < begins.size() && begins[i + 1] < used ? begins[i + 1] : context_;
    std::fill(out.segments + begin, out.segments + end, ++segment);
    std::iota(out.positions + begin, out.positions + end, 0);
  }
}

}  // namespace tandem
