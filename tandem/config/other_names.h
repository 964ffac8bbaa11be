// What other programs call our keys and values: people bring those names along, and no distance between words
// leads from `learning_rate` to `train.lr`.
#pragma once

#include <string_view>

namespace tandem {

// The key that a name such as `model.hidden_size` or `batch-size` stands for; empty where we know of none.
std::string_view key_for_other_name(std::string_view name);

// The value that a word such as `float16` or `gpu` stands for; empty where we know of none.
std::string_view value_for_other_name(std::string_view word);

}  // namespace tandem
