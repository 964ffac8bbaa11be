#include "tandem/plan/search_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tandem/base/quantity.h"
#include "tandem/compile/passes/recompute.h"
#include "tandem/config/enum_names.h"
#include "tandem/config/keys.h"
#include "tandem/plan/time_report.h"

namespace tandem::plan {
namespace {

constexpr std::string_view kSearched[] = {"precision",        "parallel.strategy", "parallel.data",
                                          "parallel.tensor",  "parallel.pipeline", "parallel.schedule",
                                          "parallel.chunks",  "parallel.sync",     "train.micro_batch",
                                          "memory.recompute", "memory.offload"};

struct PartName {
  double TimeParts::*seconds;
  std::string_view name;
};
constexpr PartName kNames[] = {{&TimeParts::compute, "compute"},         {&TimeParts::comm_data, "data axis"},
                               {&TimeParts::comm_tensor, "tensor axis"}, {&TimeParts::comm_pipeline, "sends"},
                               {&TimeParts::bubble, "bubble"},           {&TimeParts::host, "host"}};

double hours_alone(const Choice& choice, const Job& job) { return job.steps * choice.plan.step_s / 3600; }

}  // namespace

std::string describe(const Choice& choice) {
  const Candidate& c = choice.candidate;
  std::string text = c.mesh.data > 1 ? fmt::format("data {} ({})", c.mesh.data, name_of(c.strategy)) : "";
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : " x ") + part; };
  if (c.mesh.tensor > 1) add(fmt::format("tensor {}", c.mesh.tensor));
  if (c.mesh.pipeline > 1)
    add(fmt::format("pipeline {} ({}{})", c.mesh.pipeline, name_of(c.schedule),
                    c.chunks > 1 ? fmt::format(" {}", c.chunks) : ""));
  if (text.empty()) text = "one rank";
  text += fmt::format(", {} of {}", count_of(c.passes(choice.config.train.batch), "pass"), c.micro_batch);
  if (c.sync == GradientSync::Step) text += " reduced once";
  if (c.recompute.kind != RecomputeKind::None)
    text += fmt::format(", recompute {}", recompute_name(choice.plan.recompute));
  for (const OffloadKind kind : c.offload) text += fmt::format(", {} on the host", name_of(kind));
  return text + fmt::format(", {}", name_of(c.precision));
}

std::string reason(const Choice& choice, const Choice& first) {
  const TimeParts &own = choice.plan.parts(), &best = first.plan.parts();
  const bool same_machines = choice.plan.cluster.name == first.plan.cluster.name &&
                             choice.plan.cluster.gpus == first.plan.cluster.gpus;
  const bool compared = &choice != &first && same_machines;
  std::vector<std::pair<double, std::string_view>> parts;
  for (const PartName& part : kNames)
    parts.emplace_back(own.*part.seconds - (compared ? best.*part.seconds : 0), part.name);
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  if (compared) text = fmt::format("+{:.1f}%:", 100 * (choice.plan.step_s / first.plan.step_s - 1));
  for (size_t i = 0; i < 2; ++i) {
    const double share = 100 * parts[i].first / choice.plan.step_s;
    if (share < 0.5) break;
    text += compared
                ? fmt::format("{} {} +{:.0f} ms", i > 0 ? "," : "", parts[i].second, parts[i].first * 1e3)
                : fmt::format("{}{} {:.0f}%", i > 0 ? ", " : "", parts[i].second, share);
  }
  if (compared && text.back() == ':') text += " as fast";
  return text;
}

nlohmann::json changes(const Config& given, const Config& chosen) {
  nlohmann::json changed = nlohmann::json::object();
  for (const std::string_view path : kSearched) {
    const Key* key = find_key(path);
    if (key->read(given) != key->read(chosen)) changed[std::string(path)] = key->read(chosen);
  }
  return changed;
}

std::vector<Payment> front(const std::vector<Choice>& choices) {
  std::vector<Payment> all;
  for (size_t i = 0; i < choices.size(); ++i) {
    for (const Offer& offer : choices[i].offers) {
      const int gpus = offer.instances * offer.price.gpus;
      if (offer.price.on_demand)
        all.push_back({i, &offer, false, offer.on_demand.hours, offer.on_demand.total(), gpus});
      if (offer.spot) all.push_back({i, &offer, true, offer.spot->hours, offer.spot->total(), gpus});
    }
  }
  const auto beats = [](const Payment& a, const Payment& b) {
    const bool no_worse = a.hours <= b.hours && a.usd <= b.usd && a.gpus <= b.gpus;
    return no_worse && (a.hours < b.hours || a.usd < b.usd || a.gpus < b.gpus);
  };
  std::vector<Payment> best;
  for (const Payment& one : all) {
    const bool beaten =
        std::any_of(all.begin(), all.end(), [&](const Payment& other) { return beats(other, one); });
    const bool is_there = std::any_of(best.begin(), best.end(), [&](const Payment& other) {
      return other.hours == one.hours && other.usd == one.usd && other.gpus == one.gpus;
    });
    if (!beaten && !is_there) best.push_back(one);
  }
  std::stable_sort(best.begin(), best.end(),
                   [](const Payment& a, const Payment& b) { return a.hours < b.hours; });
  return best;
}

std::string print(const std::vector<Choice>& choices, const Totals& totals, const Job& job) {
  std::string text = fmt::format("{} ways, {} compiled and simulated, {} of them too large\n\n",
                                 totals.candidates, totals.compiled, totals.too_large);
  text += fmt::format("  {:>2}  {:<22} {:>12} {:>10} {:>6} {:>10} {:>10} {:>12}\n", "", "machines", "step",
                      "tokens/s", "MFU", "memory", "hours", "USD");
  for (size_t i = 0; i < choices.size(); ++i) {
    const Choice& choice = choices[i];
    const TimePlan& plan = choice.plan;
    const bool priced = !choice.offers.empty();
    text += fmt::format(
        "  {:>2}  {:<22} {:>9.1f} ms {:>10} {:>5.1f}% {:>10} {:>10.2f} {:>12}\n      {}\n      {}\n", i + 1,
        fmt::format("{} x {}", plan.cluster.gpus, plan.cluster.name), plan.step_s * 1e3,
        format_count(plan.tokens_per_s), plan.mfu * 100, format_bytes(plan.memory_bytes),
        priced ? cheapest_hours(choice.offers[0]) : hours_alone(choice, job),
        priced ? fmt::format("{:.2f}", cheapest(choice.offers[0])) : "-", describe(choice),
        reason(choice, choices[0]));
  }
  const std::vector<Payment> best = front(choices);
  if (best.empty()) return text;
  text += fmt::format(
      "\n  no other way is better in time, money and GPUs at once ({:.0f} steps)\n  {:>6} {:>10} {:>12}  "
      "{:<3}\n",
      job.steps, "GPUs", "hours", "USD", "");
  for (const Payment& one : best)
    text += fmt::format("  {:>6} {:>10.2f} {:>12.2f}  {} x {} of {}, {}, way {}\n", one.gpus, one.hours,
                        one.usd, one.offer->instances, one.offer->price.instance, one.offer->price.provider,
                        one.spot ? "spot" : "on demand", one.choice + 1);
  return text;
}

nlohmann::json to_json(const std::vector<Choice>& choices, const Totals& totals, const Job& job,
                       const Config& given) {
  nlohmann::json all = to_json(choices.at(0).plan), list = nlohmann::json::array(),
                 best = nlohmann::json::array();
  for (const Choice& choice : choices) {
    nlohmann::json one = to_json(choice.plan);
    one["config"] = changes(given, choice.config);
    one["gpus"] = choice.plan.cluster.gpus;
    one["why"] = reason(choice, choices[0]);
    one["hours"] = hours_alone(choice, job);
    for (const char* key : {"usd_on_demand", "usd_spot", "provider", "instance"}) one[key] = nullptr;
    if (!choice.offers.empty()) {
      const Offer& offer = choice.offers[0];
      one["hours"] = cheapest_hours(offer);
      if (offer.price.on_demand) one["usd_on_demand"] = cents(offer.on_demand.total());
      if (offer.spot) one["usd_spot"] = cents(offer.spot->total());
      one["provider"] = offer.price.provider;
      one["instance"] = offer.price.instance;
    }
    list.push_back(std::move(one));
  }
  for (const Payment& one : front(choices))
    best.push_back({{"choice", one.choice},
                    {"gpus", one.gpus},
                    {"hours", one.hours},
                    {"usd", cents(one.usd)},
                    {"spot", one.spot},
                    {"provider", one.offer->price.provider},
                    {"instance", one.offer->price.instance}});
  all["steps"] = job.steps;
  all["offers"] = to_json(choices[0].offers);
  all["choices"] = list;
  all["front"] = best;
  all["searched"] = {
      {"candidates", totals.candidates}, {"compiled", totals.compiled}, {"too_large", totals.too_large}};
  return all;
}

}  // namespace tandem::plan
