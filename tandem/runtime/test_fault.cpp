#include "tandem/runtime/test_fault.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/system.h"
#include "tandem/comm/places/place_page.h"

namespace tandem {
namespace {

bool is_state(Arena arena) {
  return arena == Arena::Weights || arena == Arena::Master || arena == Arena::Optimizer;
}

}  // namespace

std::optional<TestFault> TestFault::from_environment() {
  const char* text = std::getenv("TANDEM_TEST_FAULT");
  const char* restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
  if (text == nullptr || *text == '\0' || (restarts != nullptr && std::atoi(restarts) > 0))
    return std::nullopt;
  TestFault fault;
  long long step = 0, number = 0;
  char word[5] = {};
  if (std::sscanf(text, "%4[a-z]:%d:%lld:%lld", word, &fault.rank_, &step, &number) == 4) {
    constexpr std::pair<std::string_view, Kind> kKinds[] = {{"loop", Kind::Loop},
                                                            {"lose", Kind::Lose},
                                                            {"flip", Kind::Flip},
                                                            {"rust", Kind::Rust},
                                                            {"bend", Kind::Bend}};
    for (const auto& [name, kind] : kKinds) {
      if (name != word) continue;
      fault.kind_ = kind;
      fault.step_ = step;
      fault.number_ = number;
      return fault;
    }
  }
  if (std::sscanf(text, "slow:%d:%lf", &fault.rank_, &fault.factor_) == 2) return fault;
  throw ConfigError(
      "TANDEM_TEST_FAULT: expected loop:RANK:STEP:N, lose:RANK:STEP:N, slow:RANK:FACTOR or flip, rust or "
      "bend:RANK:STEP:N, found '{}'",
      text);
}

bool TestFault::is_mine() const {
  const PlacePage* page = place_page();
  return page != nullptr && page->rank == rank_;
}

void TestFault::before(const Program& program, const BoundCommand& item) const {
  if (kind_ == Kind::Rust && !done_ && is_mine()) return rust(item);
  if ((kind_ != Kind::Loop && kind_ != Kind::Flip) || done_ || !is_mine()) return;
  const MainRecord main = place_page()->main.read();
  if (main.step != step_ || std::string_view(main.program) == "update") return;
  if (kind_ == Kind::Flip) {
    for (size_t i = 0; i < item.in.size() && !done_ && number_ >= 0; ++i) {
      if (item.command->in[i].arena == Arena::Weights) flip(item.in[i]);
    }
    return;
  }
  std::vector<size_t> kernels;
  for (const BoundCommand& other : program) {
    if (other.kernel != nullptr) kernels.push_back(other.index);
  }
  if (item.index != kernels[static_cast<size_t>(number_) % kernels.size()]) return;
  fmt::print(stderr, "fault: loops in {} of block {} (command {} of {})\n", op_name(item.command->op),
             item.command->block, item.index + 1, program.size());
  for (std::atomic<uint64_t> round{0};;) round.fetch_add(1, std::memory_order_relaxed);
}

void TestFault::rust(const BoundCommand& item) const {
  const MainRecord main = place_page()->main.read();
  if (main.step + 1 == step_ && std::string_view(main.program) == "update") {
    for (size_t i = 0; i < item.in.size(); ++i) {
      if (is_state(item.command->in[i].arena)) seen_.push_back(item.in[i]);
    }
  } else if (main.step == step_ && !seen_.empty()) {
    flip(seen_[static_cast<size_t>(number_) % seen_.size()]);
  }
}

void TestFault::bend(const BoundCommand& item) const {
  const MainRecord main = place_page()->main.read();
  if (main.step != step_ || std::string_view(main.program) != "update") return;
  for (size_t i = 0; i < item.out.size() && !done_; ++i) {
    if (!is_state(item.command->out[i].arena)) continue;
    seen_.push_back(item.out[i]);
    if (static_cast<int64_t>(seen_.size()) == number_) flip(item.out[i]);
  }
}

bool TestFault::loses(const BoundCommand& item) const {
  if (kind_ != Kind::Lose || item.command->op != Op::Send || !is_mine()) return false;
  if (place_page()->main.read().step != step_ || ++messages_ != number_) return false;
  fmt::print(stderr, "fault: loses a message (command {})\n", item.index + 1);
  return true;
}

// The sign of the first number's half of it, or of the whole of it.
void TestFault::flip(const TensorArg& tensor) const {
  static_cast<uint8_t*>(tensor.data)[1] ^= 0x80;
  done_ = true;
  fmt::print(stderr, "fault: turned a bit\n");
}

void TestFault::after(const BoundCommand& item, double seconds) const {
  if (kind_ == Kind::Bend && !done_ && is_mine()) return bend(item);
  if ((kind_ != Kind::Slow && kind_ != Kind::Flip) || !is_mine()) return;
  if (kind_ == Kind::Flip) {
    const MainRecord main = place_page()->main.read();
    if (!done_ && number_ < 0 && main.step == step_ && std::string_view(main.program) != "update" &&
        static_cast<int64_t>(item.index) >= -number_ && !item.out.empty())
      flip(item.out[0]);
    return;
  }
  const double end = steady_s() + seconds * (factor_ - 1);
  while (steady_s() < end) {
  }
}

}  // namespace tandem
