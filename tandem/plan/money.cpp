#include "tandem/plan/money.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/quantity.h"

namespace tandem::plan {
namespace {

// Hardware fails once in so many GPU-hours (Llama 3 405B: 419 times in 54 days on 16,384 H100).
constexpr double kGpuHoursToFailure = 50700;
// Spot: nodes of one zone and type go together, so that a cluster lasts about as long as a node. Measured
// traces: 4.3 h for one GPU, 0.8 to 2.0 h for eight.
constexpr double kSpotHoursOfOne = 4.3, kSpotHoursOfMany = 1.7;
constexpr double kRestartOnDemand = 300, kRestartSpot = 600;  // s: machine, program, compilation
constexpr double kSaveStart = 0.5;                            // s, before and after the copy to the host
constexpr double kStoreRate = 2e9;                            // bytes/s that a node reads of a store
constexpr double kCheckpointsKept = 3;
constexpr double kStoragePrice = 0.023, kEgressPrice = 0.09;  // USD: a GB a month, a GB
constexpr double kHoursOfMonth = 730;
constexpr int kOldAfterDays = 90;

bool is_old(const std::string& date) {
  using namespace std::chrono;
  const auto number = [&](size_t at, size_t count) { return std::stoi(date.substr(at, count)); };
  const year_month_day day{year{number(0, 4)}, month{static_cast<unsigned>(number(5, 2))},
                           std::chrono::day{static_cast<unsigned>(number(8, 2))}};
  if (!day.ok()) return true;
  return floor<days>(system_clock::now()) - sys_days{day} > days{kOldAfterDays};
}

bool charges_egress(std::string_view provider) {
  return provider == "aws" || provider == "gcp" || provider == "azure";
}

Bill make_bill(const TimePlan& plan, const Offer& offer, double price, double steps, bool spot) {
  const double gpus = static_cast<double>(offer.instances) * offer.price.gpus;
  const double state = static_cast<double>(plan.state_bytes);
  Bill bill;
  bill.interruptions.save = kSaveStart + state / plan.cluster.gpus / plan.cluster.gpu.pcie;
  const double read = state / (kStoreRate * offer.instances);
  bill.interruptions.restart = (spot ? kRestartSpot : kRestartOnDemand) + read;
  double mean_hours = kGpuHoursToFailure / gpus;
  if (spot) mean_hours = std::min(mean_hours, offer.price.gpus == 1 ? kSpotHoursOfOne : kSpotHoursOfMany);
  bill.interruptions.mean = 3600 * mean_hours;
  bill.interval = std::max(daly_interval(bill.interruptions), offer.step_s);
  const double wall = expected_seconds(bill.interruptions, steps * offer.step_s, bill.interval);
  bill.expected = wall / bill.interruptions.mean;
  bill.hours = cents(wall / 3600);
  bill.compute = cents(bill.hours * offer.instances * price);
  bill.storage = cents(kCheckpointsKept * state * 1e-9 * kStoragePrice * bill.hours / kHoursOfMonth);
  bill.egress = charges_egress(offer.price.provider) ? cents(state * 1e-9 * kEgressPrice) : 0;
  return bill;
}

// The cluster as this instance type would be; none where it could not be.
std::optional<Cluster> cluster_of(const TimePlan& plan, const Price& price, int instances) {
  Cluster cluster = plan.cluster;
  cluster.name = price.instance;
  const NodeType* node = catalogue().find_node(price.instance);
  if (node != nullptr && node->ram_bytes > 0) cluster.host_memory = node->ram_bytes;
  if (instances == 1) {
    if (price.gpus < cluster.gpus) return std::nullopt;
    cluster.gpus_per_node = std::max(cluster.gpus_per_node, cluster.gpus);
    return cluster;
  }
  if (node == nullptr || node->network <= 0) return std::nullopt;
  cluster.gpus_per_node = price.gpus;
  cluster.network = node->network;
  cluster.hop = node->hop;
  cluster.chunking = node->chunking;
  return cluster;
}

nlohmann::json bill_json(const Bill& bill) {
  const Overhead with = first_order_with_notice(bill.interruptions, bill.interval);
  return {{"hours", bill.hours},
          {"usd", cents(bill.total())},
          {"usd_compute", bill.compute},
          {"usd_storage", bill.storage},
          {"usd_egress", bill.egress},
          {"checkpoint_every_s", bill.interval},
          {"young_s", young_interval(bill.interruptions)},
          {"expected_interruptions", bill.expected},
          {"save_s", bill.interruptions.save},
          {"mean_time_between_s", bill.interruptions.mean},
          {"restart_s", bill.interruptions.restart},
          {"overhead", first_order(bill.interruptions, bill.interval).total()},
          {"overhead_with_notice", with.total()}};
}

// What the ranks of a node take of its own memory, where nodes have another number of GPUs.
int64_t host_bytes_on(const TimePlan& plan, const Cluster& cluster) {
  const int world = plan.mesh.world();
  const int before = std::min(world, plan.cluster.gpus_per_node),
            now = std::min(world, cluster.gpus_per_node);
  return plan.host_bytes / std::max(before, 1) * now;
}

}  // namespace

double cents(double dollars) { return std::round(dollars * 100) / 100; }

std::vector<Offer> offers(const TimePlan& plan, const std::vector<Price>& prices, const Job& job,
                          const std::function<double(const Cluster&)>& step_on) {
  std::vector<Offer> list;
  for (const Price& price : prices) {
    const bool wanted = job.providers.empty() || std::find(job.providers.begin(), job.providers.end(),
                                                           price.provider) != job.providers.end();
    if (!wanted || !same_name(price.gpu, plan.cluster.gpu.name)) continue;
    Offer offer;
    offer.price = price;
    offer.instances = (plan.cluster.gpus + price.gpus - 1) / price.gpus;
    if (offer.instances == 1 && price.gpus >= 2 * plan.cluster.gpus) continue;  // a smaller one would do
    const std::optional<Cluster> cluster = cluster_of(plan, price, offer.instances);
    if (!cluster || !fits_host(*cluster, host_bytes_on(plan, *cluster))) continue;
    offer.step_s = step_on(*cluster);
    offer.is_old = is_old(price.date);
    if (price.on_demand) offer.on_demand = make_bill(plan, offer, *price.on_demand, job.steps, false);
    if (price.spot) offer.spot = make_bill(plan, offer, *price.spot, job.steps, true);
    list.push_back(std::move(offer));
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const Offer& a, const Offer& b) { return cheapest(a) < cheapest(b); });
  return list;
}

double cheapest(const Offer& offer) {
  double least = std::numeric_limits<double>::infinity();
  if (offer.price.on_demand) least = offer.on_demand.total();
  return offer.spot ? std::min(least, offer.spot->total()) : least;
}

double cheapest_hours(const Offer& offer) {
  const bool on_demand = offer.price.on_demand && cheapest(offer) == offer.on_demand.total();
  return on_demand ? offer.on_demand.hours : offer.spot->hours;
}

std::vector<Offer> affordable(std::vector<Offer> list, double budget, double deadline) {
  const auto meets = [&](const Bill& bill) {
    return (budget <= 0 || bill.total() <= budget) && (deadline <= 0 || bill.hours * 3600 <= deadline);
  };
  std::erase_if(list, [&](Offer& offer) {
    if (offer.spot && !meets(*offer.spot)) offer.spot.reset();
    if (offer.price.on_demand && !meets(offer.on_demand)) offer.price.on_demand.reset();
    return !offer.spot && !offer.price.on_demand;
  });
  return list;
}

std::vector<Offer> within(std::vector<Offer> list, double budget, double deadline) {
  if (list.empty() && (budget > 0 || deadline > 0))
    throw ConfigError(
        "--budget, --deadline: no provider of the price list has these GPUs in a form that could run this; "
        "use "
        "--prices FILE");
  if (list.empty()) return list;
  const std::vector<Offer> all = list;
  list = affordable(std::move(list), budget, deadline);
  if (!list.empty()) return list;
  double dollars = std::numeric_limits<double>::infinity(), hours = dollars;
  for (const Offer& offer : all) {
    dollars = std::min(dollars, cheapest(offer));
    if (offer.price.on_demand) hours = std::min(hours, offer.on_demand.hours);
    if (offer.spot) hours = std::min(hours, offer.spot->hours);
  }
  if (budget > 0 && dollars > budget)
    throw ConfigError(
        "--budget {:.2f}USD: the cheapest way takes {:.2f}USD; give more, fewer --tokens, or --search "
        "for a better mesh",
        budget, dollars);
  if (deadline > 0 && hours * 3600 > deadline)
    throw ConfigError(
        "--deadline {:.2f}h: the fastest way takes {:.2f}h; give more time, more GPUs, or fewer --tokens",
        deadline / 3600, hours);
  throw ConfigError(
      "--budget and --deadline: no way meets both; the cheapest takes {:.2f}USD, the fastest {:.2f}h",
      dollars, hours);
}

std::string print(const std::vector<Offer>& list, const Job& job) {
  if (list.empty()) return "\n  no provider of the price list has these GPUs in a form that could run this\n";
  std::string text = fmt::format("\n  {:<65} {:>9} {:>12} {:>12} {:>14}\n",
                                 fmt::format("{:.0f} steps {:>50}", job.steps, "USD/h"), "hours", "USD",
                                 "saves every", "interruptions");
  struct Line {
    const Offer* offer;
    const char* kind;
    double price;
    const Bill* bill;
  };
  std::vector<Line> lines;
  bool old = false;
  for (const Offer& offer : list) {
    if (offer.price.on_demand)
      lines.push_back({&offer, "on demand", *offer.price.on_demand, &offer.on_demand});
    if (offer.spot) lines.push_back({&offer, "spot", *offer.price.spot, &*offer.spot});
    old = old || offer.is_old;
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const Line& a, const Line& b) { return a.bill->total() < b.bill->total(); });
  for (const auto& [offer, kind, price, bill] : lines) {
    text += fmt::format("  {:<10} {:<9} {:>4} x {:<32} {:>8.2f} {:>9.2f} {:>12.2f} {:>12} {:>14.1f}{}\n",
                        offer->price.provider, kind, offer->instances, offer->price.instance, price,
                        bill->hours, bill->total(), format_duration(bill->interval), bill->expected,
                        offer->is_old ? "  price of " + offer->price.date : "");
  }
  text += fmt::format(
      "  USD = hours x instances x USD/h + storage of {:.0f} checkpoints + egress of one; spot lasts {} h at "
      "a time here\n",
      kCheckpointsKept, kSpotHoursOfMany);
  if (old)
    text += fmt::format(
        "  some prices are more than {} days old: check them, and give newer ones with --prices\n",
        kOldAfterDays);
  return text;
}

nlohmann::json to_json(const std::vector<Offer>& list) {
  nlohmann::json all = nlohmann::json::array();
  for (const Offer& offer : list) {
    nlohmann::json item = {{"provider", offer.price.provider},
                           {"instance", offer.price.instance},
                           {"instances", offer.instances},
                           {"region", offer.price.region},
                           {"gpus", offer.instances * offer.price.gpus},
                           {"step_s", offer.step_s},
                           {"price_date", offer.price.date},
                           {"price_source", offer.price.source},
                           {"price_is_old", offer.is_old},
                           {"note", offer.price.note}};
    item["hours"] = cheapest_hours(offer);
    item["usd_on_demand"] = nullptr;
    item["usd_spot"] = nullptr;
    if (offer.price.on_demand) {
      item["price_on_demand"] = *offer.price.on_demand;
      item["on_demand"] = bill_json(offer.on_demand);
      item["usd_on_demand"] = cents(offer.on_demand.total());
    }
    if (offer.spot) {
      item["price_spot"] = *offer.price.spot;
      item["spot"] = bill_json(*offer.spot);
      item["usd_spot"] = cents(offer.spot->total());
    }
    all.push_back(std::move(item));
  }
  return all;
}

}  // namespace tandem::plan
