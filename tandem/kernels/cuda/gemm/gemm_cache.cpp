#include "tandem/kernels/cuda/gemm/gemm_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/file.h"

namespace tandem::cuda {
namespace {

constexpr std::string_view kSeparator = " : ", kSeparate = "separate";
constexpr size_t kHexDigits = 16;  // of a word
constexpr std::chrono::seconds kTurnPatience(20);

std::string_view epilogue_name(GemmEpilogue epilogue) {
  switch (epilogue) {
    case GemmEpilogue::None: return "none";
    case GemmEpilogue::Bias: return "bias";
    case GemmEpilogue::GeluBias: return "gelu_bias";
    case GemmEpilogue::GeluGrad: return "gelu_grad";
    case GemmEpilogue::ColumnSumsOfA: return "column_sums_of_a";
  }
  return "";
}

std::string to_text(const GemmChoice& choice) {
  if (choice.separate) return std::string(kSeparate);
  std::string text;
  for (const uint64_t word : choice.algorithm) text += fmt::format("{:016x}", word);
  return text;
}

std::optional<GemmChoice> parse_choice(std::string_view text) {
  GemmChoice choice;
  choice.separate = text == kSeparate;
  if (choice.separate) return choice;
  if (text.size() != choice.algorithm.size() * kHexDigits) return std::nullopt;
  for (size_t i = 0; i < choice.algorithm.size(); ++i) {
    const char* begin = text.data() + i * kHexDigits;
    const auto [end, error] = std::from_chars(begin, begin + kHexDigits, choice.algorithm[i], 16);
    if (error != std::errc() || end != begin + kHexDigits) return std::nullopt;
  }
  return choice;
}

std::map<std::string, GemmChoice> read_choices(const std::filesystem::path& file) {
  std::error_code ignored;
  if (file.empty() || !std::filesystem::exists(file, ignored)) return {};
  std::string text;
  try {
    text = read_text(file);
  } catch (const Error&) {
    return {};  // as if it were missing: products are timed again
  }
  std::map<std::string, GemmChoice> choices;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const size_t split = line.find(kSeparator);
    if (split == std::string_view::npos) continue;
    if (const auto choice = parse_choice(line.substr(split + kSeparator.size())))
      choices[std::string(line.substr(0, split))] = *choice;
  }
  return choices;
}

// Like write_atomically, but without waiting for the disk: what a crash loses is timed again.
void replace_file(const std::filesystem::path& file, std::string_view text) {
  const std::filesystem::path temporary = file.string() + fmt::format(".tmp-{}", ::getpid());
  OutputFile(temporary).write_all(std::as_bytes(std::span(text)));
  std::filesystem::rename(temporary, file);
}

std::filesystem::path cache_directory() {
  const auto from = [](const char* variable, const char* below) -> std::filesystem::path {
    const char* value = std::getenv(variable);
    return value == nullptr || *value == '\0' ? std::filesystem::path()
                                              : std::filesystem::path(value) / below;
  };
  for (const auto& directory :
       {from("TANDEM_CACHE_DIR", ""), from("XDG_CACHE_HOME", "tandem"), from("HOME", ".cache/tandem")}) {
    if (!directory.empty()) return directory;
  }
  return {};
}

}  // namespace

std::string gemm_key(const Gemm& gemm, int alignment) {
  // Only of rows with gaps, so that other products keep the names they have in files.
  const bool has_gaps = gemm.pitch_a != 0 && gemm.pitch_a != (gemm.trans_a ? gemm.m : gemm.k);
  return fmt::format("m={} n={} k={} trans_a={:d} trans_b={:d} in={}{}{} out={} epilogue={} align={}{}",
                     gemm.m, gemm.n, gemm.k, gemm.trans_a, gemm.trans_b, dtype_name(gemm.in),
                     gemm.in_b ? "*" : "", gemm.in_b ? dtype_name(*gemm.in_b) : "", dtype_name(gemm.out),
                     epilogue_name(gemm.epilogue), alignment,
                     has_gaps ? fmt::format(" pitch_a={}", gemm.pitch_a) : "");
}

std::filesystem::path gemm_cache_file(std::string_view gpu, int major, int minor, size_t library_version) {
  const std::filesystem::path directory = cache_directory();
  if (directory.empty()) return {};
  std::string name;
  for (const char c : gpu) {
    const auto byte = static_cast<unsigned char>(c);
    name += std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : '-';
  }
  return directory / fmt::format("gemm-{}-sm{}{}-cublaslt-{}.txt", name, major, minor, library_version);
}

GemmCache::GemmCache(std::filesystem::path file) : file_(std::move(file)), choices_(read_choices(file_)) {}

std::optional<GemmChoice> GemmCache::find(const std::string& key) const {
  const auto it = choices_.find(key);
  return it == choices_.end() ? std::nullopt : std::optional(it->second);
}

GemmCache::Turn::Turn(const std::filesystem::path& file) {
  using Clock = std::chrono::steady_clock;
  if (file.empty()) return;
  std::error_code ignored;  // where nothing can be written, there are no turns
  std::filesystem::create_directories(file.parent_path(), ignored);
  descriptor_ = ::open((file.string() + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  const auto deadline = Clock::now() + kTurnPatience;
  while (descriptor_ >= 0 && ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && Clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

GemmCache::Turn::~Turn() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void GemmCache::refresh() { choices_.merge(read_choices(file_)); }

void GemmCache::add(const std::string& key, const GemmChoice& choice) {
  choices_[key] = choice;
  if (file_.empty()) return;
  choices_.merge(read_choices(file_));  // keeps ours where both have one
  std::string text;
  for (const auto& [name, chosen] : choices_)
    text += fmt::format("{}{}{}\n", name, kSeparator, to_text(chosen));
  try {
    std::filesystem::create_directories(file_.parent_path());
    replace_file(file_, text);
  } catch (const std::exception&) {
    file_.clear();
  }
}

}  // namespace tandem::cuda
