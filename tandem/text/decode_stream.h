// Text from tokens as they come: a character whose last byte is still to come is held back.
#pragma once

#include <string>
#include <vector>

#include "tandem/text/tokenizer.h"

namespace tandem {

class DecodeStream {
 public:
  // `before`: tokens that were decoded already, such as a prompt's. The tokenizer outlives this.
  explicit DecodeStream(const Tokenizer& tokenizer, std::span<const int32_t> before = {});

  std::string add(int32_t token);  // the text that is certain now
  std::string finish();            // what was held back, as it is

 private:
  std::string next(bool hold);

  const Tokenizer& tokenizer_;
  std::vector<int32_t> tokens_;  // the last ones: some that were given out, then those that were not
  size_t given_ = 0;
};

}  // namespace tandem
