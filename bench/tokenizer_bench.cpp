// Our tokenizers on the lines of a file, a JSON string each: how many ids each has, and their sum, into OUT;
// prints the seconds of a core that encoding took. bench/tokenizers.py runs it beside Hugging Face's.
//   tokenizer_bench tokenizer.json LINES OUT
#include <cstdio>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tandem/text/tokenizer.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s tokenizer.json LINES OUT\n", argv[0]);
    return 2;
  }
  const auto tokenizer = tandem::make_tokenizer(argv[1]);
  std::vector<std::string> texts;
  std::ifstream lines(argv[2]);
  for (std::string line; std::getline(lines, line);) texts.push_back(nlohmann::json::parse(line));
  std::vector<std::vector<int32_t>> encodings(texts.size());
  const std::clock_t begin = std::clock();
  for (size_t i = 0; i < texts.size(); ++i) tokenizer->encode(texts[i], encodings[i]);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  std::ofstream out(argv[3]);
  for (const auto& ids : encodings)
    out << ids.size() << ' ' << std::accumulate(ids.begin(), ids.end(), int64_t{0}) << '\n';
  std::printf("%f\n", seconds);
  return 0;
}
