#include "tandem/plan/time_report.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "tandem/base/quantity.h"
#include "tandem/compile/passes/recompute.h"
#include "tandem/config/enum_names.h"
#include "tandem/config/mesh.h"
#include "tandem/metrics/trace.h"

namespace tandem::plan {
namespace {

struct PartRow {
  const char* key;
  const char* name;
  double TimeParts::*seconds;
};
constexpr std::array<PartRow, 7> kParts = {{{"compute", "compute", &TimeParts::compute},
                                            {"comm_data", "data axis", &TimeParts::comm_data},
                                            {"comm_tensor", "tensor axis", &TimeParts::comm_tensor},
                                            {"comm_pipeline", "pipeline axis", &TimeParts::comm_pipeline},
                                            {"bubble", "bubble", &TimeParts::bubble},
                                            {"host", "host", &TimeParts::host},
                                            {"data", "data", &TimeParts::data}}};
constexpr std::array<const char*, kNumStreams> kStreams = {"compute", "data axis", "sends", "copies"};

std::string ms(double seconds) { return fmt::format("{:.3f} ms", seconds * 1e3); }

}  // namespace

std::string print(const TimePlan& plan, const Config& config) {
  const MeshShape& mesh = plan.mesh;
  const Cluster& cluster = plan.cluster;
  std::string text =
      fmt::format("{} parameters on {} x {} ({} a node{}), {}, recompute {}\n",
                  format_count(static_cast<double>(plan.num_params)), cluster.gpus, cluster.gpu.name,
                  std::min(cluster.gpus, cluster.gpus_per_node),
                  cluster.nodes() > 1 ? fmt::format(", {:.0f} Gbit/s between", cluster.network * 8e-9) : "",
                  name_of(config.precision), recompute_name(plan.recompute));
  if (mesh.world() > 1)
    text += fmt::format("data {} ({}) x tensor {} x pipeline {}, {} of {} a step\n", mesh.data,
                        name_of(config.parallel.strategy), mesh.tensor, mesh.pipeline,
                        count_of(passes_per_step(config), "pass"), config.train.micro_batch);
  text += fmt::format("\n  {:<16} {:>14}  within {:.0f}%{}\n", "step", ms(plan.step_s), plan.error_band * 100,
                      plan.extrapolated.empty() ? "" : ", extrapolated");
  text +=
      fmt::format("  {:<16} {:>14}  {} a GPU\n", config.model.is_language_model() ? "tokens/s" : "images/s",
                  format_count(plan.tokens_per_s), format_count(plan.tokens_per_s / cluster.gpus));
  text += fmt::format("  {:<16} {:>13.1f}%  of {:.0f} TFLOP/s\n", "MFU", plan.mfu * 100,
                      cluster.gpu.peak * 1e-12);
  text += "\n  where the time goes\n";
  for (const PartRow& row : kParts) {
    const double seconds = plan.parts().*row.seconds;
    if (seconds <= 0) continue;
    text += fmt::format("  {:<16} {:>14}  {:.1f}%\n", row.name, ms(seconds), 100 * seconds / plan.step_s);
  }
  text += "\n  by stage           on the device          host   sent in a node  between nodes\n";
  for (const RankPlan& rank : plan.ranks) {
    text += fmt::format("  {:<16} {:>15} {:>13} {:>16} {:>14}\n", fmt::format("rank {}", rank.at.rank()),
                        format_bytes(device_bytes(rank.memory)),
                        format_bytes(rank.memory[static_cast<size_t>(Arena::Host)]),
                        format_bytes(static_cast<int64_t>(rank.time.sent.within_node)),
                        format_bytes(static_cast<int64_t>(rank.time.sent.between_nodes)));
  }
  text += fmt::format("  {:<16} {:>15}  of {} a GPU\n", "largest", format_bytes(plan.memory_bytes),
                      format_bytes(static_cast<int64_t>(cluster.gpu.memory_bytes)));
  for (const std::string& why : plan.extrapolated) text += fmt::format("  extrapolated: {}\n", why);
  return text;
}

nlohmann::json to_json(const TimePlan& plan) {
  nlohmann::json time = nlohmann::json::object(), ranks = nlohmann::json::array();
  for (const PartRow& row : kParts) time[row.key] = plan.parts().*row.seconds;
  for (const RankPlan& rank : plan.ranks) {
    nlohmann::json parts = nlohmann::json::object();
    for (const PartRow& row : kParts) parts[row.key] = rank.time.parts.*row.seconds;
    ranks.push_back({{"rank", rank.at.rank()},
                     {"pipeline", rank.at.pipeline},
                     {"device_bytes", device_bytes(rank.memory)},
                     {"host_bytes", rank.memory[static_cast<size_t>(Arena::Host)]},
                     {"sent_within_node", rank.time.sent.within_node},
                     {"sent_between_nodes", rank.time.sent.between_nodes},
                     {"time", parts}});
  }
  return {
      {"cluster", plan.cluster.name},
      {"gpu", plan.cluster.gpu.name},
      {"gpus", plan.cluster.gpus},
      {"mesh", {{"data", plan.mesh.data}, {"tensor", plan.mesh.tensor}, {"pipeline", plan.mesh.pipeline}}},
      {"parameters", plan.num_params},
      {"recompute", recompute_name(plan.recompute)},
      {"step_s", plan.step_s},
      {"tokens_per_s", plan.tokens_per_s},
      {"mfu", plan.mfu},
      {"time", time},
      {"kernels",
       {{"products", plan.kernels.products},
        {"attention", plan.kernels.attention},
        {"update", plan.kernels.update},
        {"other", plan.kernels.other}}},
      {"memory_bytes", plan.memory_bytes},
      {"fits", fits(plan)},
      {"checkpoint_bytes", plan.state_bytes},
      {"error_band", plan.error_band},
      {"extrapolated", !plan.extrapolated.empty()},
      {"extrapolated_why", plan.extrapolated},
      {"ranks", ranks}};
}

void TimelineTrace::add(int stage, const Item& item, double begin, double end) {
  constexpr std::array<const char*, 7> kKinds = {"kernel",     "host", "copy", "collective",
                                                 "collective", "send", "recv"};
  spans_.push_back({stage, item.stream, item.command->kernel, kKinds[static_cast<size_t>(item.kind)],
                    item.command->block, begin, end});
}

void TimelineTrace::finish(int stages) {
  TraceWriter writer(path_);
  for (int stage = 0; stage < stages; ++stage) {
    writer.name_process(stage, fmt::format("stage {}", stage));
    for (int stream = 0; stream < kNumStreams; ++stream)
      writer.name_thread(stage, stream, kStreams[static_cast<size_t>(stream)]);
  }
  for (const Span& span : spans_) {
    TraceEvent event{
        span.name, span.category, span.begin * 1e6, (span.end - span.begin) * 1e6, span.stream, span.stage,
        {}};
    event.args = nlohmann::json::object();
    if (span.block != kNoBlock) event.args["block"] = span.block;
    writer.add(event);
  }
  writer.finish();
}

}  // namespace tandem::plan
