#include "tandem/runtime/generation.h"

#include <algorithm>

#include "tandem/base/error.h"

namespace tandem {
namespace {

int64_t rows_of(const Executable& executable) {
  for (const Binding& input : executable.inputs) {
    if (input.name == "tokens") return input.slice.type.shape[1];
  }
  TANDEM_CHECK(false, "{} reads no tokens", executable.name);
  return 0;
}

// A run of `prefill` costs about as much as so many of `decode`, on a CPU; on a GPU it costs less.
constexpr int64_t kPrefillWorth = 4;

}  // namespace

Generation::Generation(Session& session) : session_(session), prefill_rows_(rows_of(session.step().prefill)) {
  TANDEM_CHECK(rows_of(session.step().decode) == 1);
}

void Generation::put(const Executable& executable, std::span<const int32_t> tokens, int64_t real) {
  const int32_t position[] = {static_cast<int32_t>(position_), static_cast<int32_t>(real)};
  session_.write(executable, "tokens", std::as_bytes(tokens));
  session_.write(executable, "position", std::as_bytes(std::span(position)));
  position_ += real;
}

void Generation::prefill(std::span<const int32_t> tokens) {
  padded_.assign(static_cast<size_t>(prefill_rows_), 0);
  std::copy(tokens.begin(), tokens.end(), padded_.begin());
  put(session_.step().prefill, padded_, static_cast<int64_t>(tokens.size()));
  session_.run_prefill();
}

void Generation::decode(int32_t token) {
  put(session_.step().decode, {&token, 1}, 1);
  session_.run_decode();
}

std::span<const float> Generation::add(std::span<const int32_t> tokens) {
  const int64_t positions = session_.step().positions;
  TANDEM_CHECK(!tokens.empty() && position_ + static_cast<int64_t>(tokens.size()) <= positions,
               "{} tokens at {} of {}", tokens.size(), position_, positions);
  for (std::span<const int32_t> before = tokens.first(tokens.size() - 1); !before.empty();) {
    const size_t whole = std::min(before.size(), static_cast<size_t>(prefill_rows_));
    if (whole >= static_cast<size_t>(std::min(prefill_rows_, kPrefillWorth))) {
      prefill(before.first(whole));
      before = before.subspan(whole);
    } else {
      decode(before.front());
      before = before.subspan(1);
    }
  }
  decode(tokens.back());
  const std::span<const std::byte> logits = session_.read(session_.step().decode, "logits");
  return {reinterpret_cast<const float*>(logits.data()), logits.size() / sizeof(float)};
}

int64_t weights_read(const CompiledStep& step) {
  int64_t bytes = 0;
  for (const Command& command : step.decode.commands) {
    for (const Slice& slice : command.in) {
      if (slice.arena != Arena::Weights) continue;
      const int64_t row = slice.type.shape.last() * dtype_bytes(slice.type.dtype);
      bytes += command.op == Op::Embedding ? row : slice.type.bytes();
    }
  }
  return bytes;
}

}  // namespace tandem
