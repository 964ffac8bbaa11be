#include "tandem/cli/logits.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "tandem/base/file.h"
#include "tandem/config/values.h"
#include "tandem/hub/hub_dtype.h"
#include "tandem/train/compile_config.h"

namespace tandem::cli {
namespace {

// NumPy's format 1.0: the header is padded so that numbers begin at a multiple of 64.
std::string npy_header(size_t rows, size_t cols) {
  std::string header =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, cols);
  constexpr size_t kPreamble = 10, kAlign = 64;
  header.append(kAlign - (kPreamble + header.size() + 1) % kAlign, ' ');
  header += '\n';
  std::string file = "\x93NUMPY";
  file += '\x01';
  file += '\0';
  file += static_cast<char>(header.size() & 0xff);
  file += static_cast<char>(header.size() >> 8);
  return file + header;
}

}  // namespace

std::vector<int32_t> parse_ids(const std::string& text, int64_t vocab) {
  std::vector<int32_t> ids;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    int32_t id = -1;
    const auto [last, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || last != text.data() + end || id < 0 || id >= vocab)
      throw ConfigError("--ids: expected tokens from 0 to {}, such as 1,2,3, found {}", vocab - 1,
                        in_quotes(text.substr(at, end - at)));
    ids.push_back(id);
    at = end + 1;
  }
  return ids;
}

void write_logits(const ModelSource& source, const BuildModel& model, std::vector<int32_t> ids,
                  const std::string& file) {
  Config config = source.config;
  config.data.documents = Documents::Joined;  // there is one
  const auto tokens = static_cast<int64_t>(ids.size());
  if (!config.model.has(kWeightedPositions)) {
    if (tokens > source.positions())
      std::fprintf(stderr, "note: --ids: has %lld tokens, but the model was made for %lld positions\n",
                   static_cast<long long>(tokens), static_cast<long long>(source.positions()));
    config.model.context = tokens;
  } else if (tokens > config.model.context) {
    throw ConfigError("--ids: the model has {} positions, found {} tokens", config.model.context, tokens);
  }
  ids.resize(static_cast<size_t>(config.model.context));  // what comes after a token does not reach it
  const Backend backend = make_backend(config);
  ThreadPool pool(thread_count(config));
  Session session(
      compile_forward(model(config.model, 1), compile_options(config, backend), ForwardOutput::Logits),
      backend, pool);
  source.load(session, config);
  session.write(session.step().eval, "tokens", std::as_bytes(std::span(ids)));
  session.run_eval();
  const std::span<const std::byte> found = session.read(session.step().eval, "logits");
  const size_t elem = found.size() / (ids.size() * static_cast<size_t>(config.model.vocab));
  std::vector<float> logits(static_cast<size_t>(tokens * config.model.vocab));
  const DType dtype = elem == sizeof(float)                 ? DType::F32
                      : config.precision == Precision::Fp16 ? DType::F16
                                                            : DType::BF16;
  hub::to_floats(found.data(), dtype, logits);
  std::string text = npy_header(static_cast<size_t>(tokens), static_cast<size_t>(config.model.vocab));
  text.append(reinterpret_cast<const char*>(logits.data()), logits.size() * sizeof(float));
  write_atomically(file, text);
}

}  // namespace tandem::cli
