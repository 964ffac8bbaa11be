#include "tandem/config/supported.h"

#include "tandem/base/error.h"
#include "tandem/config/validate.h"

namespace tandem {
namespace {

struct Refusal {
  std::string_view key;
  bool (*asked)(const Config& config);
  std::string_view reason;  // what this version lacks, and what works
};

constexpr std::string_view kOneRank = "this version trains on one rank; use 1";
constexpr std::string_view kSinks =
    "this version writes metrics.jsonl and metrics.csv only; use log.jsonl or log.csv";

constexpr Refusal kRefusals[] = {
    {"device", [](const Config& c) { return c.device == DeviceKind::Cuda; },
     "this version runs on the CPU only; use cpu or auto"},
    {"model.from", [](const Config& c) { return !c.model.from.empty(); },
     "this version cannot import a model; use model.family and its sizes"},
    {"data.tokenizer", [](const Config& c) { return c.data.tokenizer != "bytes"; },
     "this version has the bytes tokenizer only; use bytes"},
    {"parallel.strategy", [](const Config& c) { return c.parallel.strategy != Strategy::Single; },
     "this version trains on one rank; use single"},
    {"parallel.data", [](const Config& c) { return c.parallel.data > 1; }, kOneRank},
    {"parallel.tensor", [](const Config& c) { return c.parallel.tensor > 1; }, kOneRank},
    {"parallel.pipeline", [](const Config& c) { return c.parallel.pipeline > 1; }, kOneRank},
    {"precision", [](const Config& c) { return c.precision == Precision::Fp8; },
     "this version has no fp8; use fp32, bf16 or fp16"},
    {"memory.offload", [](const Config& c) { return !c.memory.offload.empty(); },
     "this version keeps everything in one memory; use []"},
    {"log.tensorboard", [](const Config& c) { return c.log.tensorboard; }, kSinks},
    {"log.wandb", [](const Config& c) { return c.log.wandb; }, kSinks},
    {"log.prometheus", [](const Config& c) { return !c.log.prometheus.empty(); }, kSinks},
};

}  // namespace

void check_supported(const ResolvedConfig& resolved) {
  for (const Refusal& refusal : kRefusals) {
    if (!refusal.asked(resolved.config)) continue;
    throw ConfigError("{}: {}", place_of(resolved, refusal.key), refusal.reason);
  }
}

}  // namespace tandem
