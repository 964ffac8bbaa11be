#include "tandem/runtime/test_fault.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tandem/base/error.h"
#include "tandem/base/system.h"
#include "tandem/comm/places/place_page.h"

namespace tandem {

std::optional<TestFault> TestFault::from_environment() {
  const char* text = std::getenv("TANDEM_TEST_FAULT");
  const char* restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
  if (text == nullptr || *text == '\0' || (restarts != nullptr && std::atoi(restarts) > 0))
    return std::nullopt;
  TestFault fault;
  long long step = 0, number = 0;
  if (std::sscanf(text, "loop:%d:%lld:%lld", &fault.rank_, &step, &number) == 3) {
    fault.kind_ = Kind::Loop;
    fault.step_ = step;
    fault.number_ = number;
    return fault;
  }
  if (std::sscanf(text, "flip:%d:%lld:%lld", &fault.rank_, &step, &number) == 3) {
    fault.kind_ = Kind::Flip;
    fault.step_ = step;
    fault.number_ = number;
    return fault;
  }
  if (std::sscanf(text, "slow:%d:%lf", &fault.rank_, &fault.factor_) == 2) return fault;
  throw ConfigError(
      "TANDEM_TEST_FAULT: expected loop:RANK:STEP:N, slow:RANK:FACTOR or flip:RANK:STEP:N, found '{}'", text);
}

bool TestFault::is_mine() const {
  const PlacePage* page = place_page();
  return page != nullptr && page->rank == rank_;
}

void TestFault::before(const Program& program, const BoundCommand& item) const {
  if (kind_ == Kind::Slow || done_ || !is_mine()) return;
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

// The sign of the first number's half of it, or of the whole of it.
void TestFault::flip(const TensorArg& tensor) const {
  static_cast<uint8_t*>(tensor.data)[1] ^= 0x80;
  done_ = true;
  fmt::print(stderr, "fault: turned a bit\n");
}

void TestFault::after(const BoundCommand& item, double seconds) const {
  if (kind_ == Kind::Loop || !is_mine()) return;
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
