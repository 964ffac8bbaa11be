#include "tandem/train/evaluation/eval_sets.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/quantity.h"
#include "tandem/comm/places/place_page.h"

namespace tandem {

EvalSets::EvalSets(const DataSources& sources, const Dataset& data, const LoaderOptions& options,
                   std::span<std::byte> memory) {
  if (sources.sets.front().name.empty()) {
    sets_.push_back({"", nullptr, std::make_unique<Loader>(data, options, memory)});
    return;
  }
  const std::vector<DatasetPart> parts = data.parts();
  TANDEM_CHECK(parts.size() == sources.sets.size());
  TANDEM_CHECK(options.workers == 0, "loaders that work ahead need memory of their own");
  int64_t first = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    auto slice = std::make_unique<DatasetSlice>(data, first, parts[i].num_samples);
    auto loader = std::make_unique<Loader>(*slice, options, memory);
    sets_.push_back({sources.sets[i].name, std::move(slice), std::move(loader)});
    first += parts[i].num_samples;
  }
}

EvalSets::Report EvalSets::evaluate(Session& session, const World& world) {
  tell_what("evaluation");
  Report report;
  double loss = 0, hits = 0, top5 = 0;
  for (const Set& set : sets_) {
    const EvalResult result = tandem::evaluate(session, *set.loader, world);
    if (set.name.empty()) return {result, {}};
    const auto targets = static_cast<double>(result.targets);
    loss += result.loss * targets;
    hits += result.accuracy * targets;
    top5 += result.top5.value_or(0) * targets;
    report.all.top5 = result.top5;
    report.all.targets += result.targets;
    report.named.push_back({set.name, result});
  }
  const auto targets = static_cast<double>(std::max<int64_t>(1, report.all.targets));
  report.all.loss = loss / targets;
  report.all.accuracy = hits / targets;
  if (report.all.top5) report.all.top5 = top5 / targets;
  return report;
}

std::vector<std::pair<std::string, double>> EvalSets::Report::more() const {
  std::vector<std::pair<std::string, double>> numbers;
  if (all.top5) numbers.emplace_back("eval_top5", *all.top5);
  for (const Named& set : named) numbers.emplace_back("eval_loss/" + set.name, set.result.loss);
  return numbers;
}

std::string EvalSets::Report::text(bool with_accuracy) const {
  std::string line = fmt::format("eval loss {}", format_loss(all.loss));
  if (with_accuracy) line += fmt::format(", accuracy {:.4f}", static_cast<float>(all.accuracy));
  if (all.top5) line += fmt::format(", top 5 {:.4f}", *all.top5);
  for (const Named& set : named) line += fmt::format(", {} {}", set.name, format_loss(set.result.loss));
  return line;
}

double EvalSets::Report::loss_of(std::string_view metric) const {
  for (const Named& set : named) {
    if (metric == "eval_loss/" + set.name) return set.result.loss;
  }
  return all.loss;
}

}  // namespace tandem
