// How fast each pair of features turns with its position, plain or stretched to longer contexts in one of the
// ways of Hugging Face's transformers. The way is a text: `none`, or `KIND:NAME=NUMBER,NAME=NUMBER` with KIND
// one of linear, llama3, yarn, longrope and transformers' own names; lists are numbers separated by blanks:
//
//   linear:factor=4
//   llama3:factor=8,low_freq_factor=1,high_freq_factor=4,original_max_position_embeddings=8192
//   longrope:short_factor=1 1.1,long_factor=2 3,original_max_position_embeddings=4096,attention_factor=1.2
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// What is wrong with such a text for heads that turn `dims` features: "expected ..., found ..."; empty if
// nothing is.
std::string rope_scaling_complaint(std::string_view scaling, int64_t dims);

struct RopeFrequencies {
  std::vector<double> values;  // of pair i, dims / 2 of them: at position t it is turned by t * values[i]
  double factor = 1;           // of all cosines and sines
};

// Stretched ones are fp32 numbers, made by the operations that transformers makes them with. `context` is the
// length of the sequences, by which longrope chooses between its lists. A text with a complaint is a
// ConfigError.
RopeFrequencies rope_frequencies(double theta, int64_t dims, std::string_view scaling, int64_t context);

}  // namespace tandem
