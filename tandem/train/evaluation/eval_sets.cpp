#include "tandem/train/evaluation/eval_sets.h"

#include <algorithm>

#include "tandem/base/error.h"

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
  Report report;
  double loss = 0, hits = 0;
  for (const Set& set : sets_) {
    const EvalResult result = tandem::evaluate(session, *set.loader, world);
    if (set.name.empty()) return {result, {}};
    const auto targets = static_cast<double>(result.targets);
    loss += result.loss * targets;
    hits += result.accuracy * targets;
    report.all.targets += result.targets;
    report.named.push_back({set.name, result});
  }
  const auto targets = static_cast<double>(std::max<int64_t>(1, report.all.targets));
  report.all.loss = loss / targets;
  report.all.accuracy = hits / targets;
  return report;
}

double EvalSets::Report::loss_of(std::string_view metric) const {
  for (const Named& set : named) {
    if (metric == "eval_loss/" + set.name) return set.result.loss;
  }
  return all.loss;
}

}  // namespace tandem
