// Runs a fuzz target on files, without a fuzzer: every file of the folders and files that are named, and each
// of its beginnings, which is what a cut file is.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

int run(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // A copy of its own for each length, so that a read behind the end is seen.
  for (size_t size = 0; size <= content.size(); ++size) {
    const std::vector<uint8_t> input(content.begin(), content.begin() + static_cast<std::ptrdiff_t>(size));
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  int ran = 0;
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) {
      ran += run(argv[i]);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) ran += run(entry.path());
  }
  std::printf("%d files\n", ran);
  return ran == 0;
}
