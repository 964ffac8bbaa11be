#include "tandem/data/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tandem/base/digest.h"

namespace tandem {

std::string fingerprint(const Dataset& dataset) {
  constexpr int64_t kSamples = 64;
  const SampleSpec spec = dataset.spec();
  const int64_t count = dataset.num_samples(), seen = std::min(count, kSamples);
  const auto input = static_cast<size_t>(spec.input_elems()),
             targets = static_cast<size_t>(spec.num_targets());
  const bool is_text = spec.kind == SampleKind::Tokens;
  std::vector<int32_t> tokens(is_text ? input : 0), wanted(targets);
  std::vector<int32_t> segments(tokens.size()), positions(tokens.size());  // where documents are told apart
  std::vector<float> image(is_text ? 0 : input);
  std::string digests;
  // The last one, too: what was appended or cut off moves it.
  const auto index_of = [&](int64_t i) { return seen > 1 ? i * (count - 1) / (seen - 1) : 0; };
  for (int64_t i = 0; i < seen; ++i) dataset.expect(index_of(i));
  for (int64_t i = 0; i < seen; ++i) {
    const int64_t index = index_of(i);
    dataset.fill(index, {.tokens = tokens.data(),
                         .image = image.data(),
                         .targets = wanted.data(),
                         .segments = segments.data(),
                         .positions = positions.data()});
    digests +=
        is_text ? digest_hex(std::as_bytes(std::span(tokens))) : digest_hex(std::as_bytes(std::span(image)));
    digests += digest_hex(std::as_bytes(std::span(wanted)));
  }
  return fmt::format("{} samples, {}", count, digest_hex(std::as_bytes(std::span(digests))));
}

}  // namespace tandem
