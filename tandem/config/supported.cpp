#include "tandem/config/supported.h"

#include "tandem/base/error.h"
#include "tandem/config/place.h"

namespace tandem {
namespace {

struct Refusal {
  std::string_view key;
  bool (*asked)(const Config& config);
  std::string_view reason;  // what this version lacks, and what works
};

constexpr Refusal kRefusals[] = {
    {"precision",
     [](const Config& c) { return c.precision == Precision::Fp8 && c.device == DeviceKind::Cpu; },
     "fp8 needs a GPU; use fp32, bf16 or fp16 on the CPU"},
    {"precision", [](const Config& c) { return c.precision == Precision::Fp8 && c.model.has(kStages); },
     "fp8 is for the matrices of blocks, and this family's blocks are convolutions; use bf16"},
    {"memory.gradients",
     [](const Config& c) { return c.memory.gradients != ReduceType::Fp32 && c.model.has(kStages); },
     "gradients of convolutions are made in fp32; use fp32"},
    {"parallel.tls", [](const Config& c) { return c.parallel.tls && c.device == DeviceKind::Cuda; },
     "NCCL, which GPUs talk through, does not encrypt; use false, and a private network"},
    {"checkpoint.memory",
     [](const Config& c) { return c.checkpoint.memory != 0 && c.checkpoint.replay != 0; },
     "copies in memory are not proven by checkpoint.replay, which goes back to what is; set one of them to "
     "0"},
    {"checkpoint.replay",
     [](const Config& c) {
       return c.checkpoint.replay != 0 &&
              !(c.checkpoint.async && (c.checkpoint.every.saves() || c.checkpoint.minutes > 0));
     },
     "needs checkpoints to go back to, and their copy of the state: set checkpoint.every and "
     "checkpoint.async"},
};

}  // namespace

void check_supported(const ResolvedConfig& resolved) {
  for (const Refusal& refusal : kRefusals) {
    if (!refusal.asked(resolved.config)) continue;
    throw ConfigError("{}: {}", place_of(resolved, refusal.key), refusal.reason);
  }
}

}  // namespace tandem
