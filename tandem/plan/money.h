// Hours and dollars: what a number of steps costs on each instance type that has the GPUs of a plan, on
// demand and on spot, interruptions, saves and storage included.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tandem/plan/interruptions.h"
#include "tandem/plan/time_plan.h"

namespace tandem::plan {

struct Price {
  std::string provider;
  std::string instance;
  std::string gpu;
  int gpus = 8;
  std::string region;
  std::optional<double> on_demand;  // USD for an hour of an instance
  std::optional<double> spot;
  std::string date;  // "2026-08-22"
  std::string source;
  std::string note;
};

// The catalogue's, or those of a CSV file with its columns. Throws ConfigError naming the line.
std::vector<Price> read_prices(const std::string& path = "");

// Providers of a list "aws,gcp"; throws ConfigError that names the nearest of an unknown one.
std::vector<std::string> parse_providers(const std::string& list, const std::vector<Price>& prices);

// "20B", "1.5T", "300M", "5000": a number of tokens. "2000USD" or "2000". "48h", "3d", "90m", "3600s" or
// hours: seconds. Throw ConfigError that begins with the flag.
double parse_amount(const std::string& text, const std::string& flag);
double parse_dollars(const std::string& text, const std::string& flag);
double parse_time(const std::string& text, const std::string& flag);

double cents(double dollars);  // rounded to whole ones

// One way to pay for it.
struct Bill {
  double hours = 0;    // of the wall, rounded as printed
  double compute = 0;  // hours x instances x price
  double storage = 0;  // of the checkpoints that are kept
  double egress = 0;   // of the last one, out of the cloud
  double total() const { return compute + storage + egress; }
  Interruptions interruptions;
  double interval = 0;  // s of work between saves
  double expected = 0;  // interruptions
};

struct Offer {
  Price price;
  int instances = 1;
  double step_s = 0;
  Bill on_demand;            // where there is a price
  std::optional<Bill> spot;  // never where its price is not known
  bool is_old = false;       // its price: more than 90 days
};

struct Job {
  double steps = 0;
  std::vector<std::string> providers;  // none: all
};

// Cheapest first. `plan_on` gives the step's time on a cluster with another network.
std::vector<Offer> offers(const TimePlan& plan, const std::vector<Price>& prices, const Job& job,
                          const std::function<double(const Cluster&)>& step_on);

// The cheapest way of an offer, and the hours of it.
double cheapest(const Offer& offer);
double cheapest_hours(const Offer& offer);

std::string print(const std::vector<Offer>& offers, const Job& job);
nlohmann::json to_json(const std::vector<Offer>& offers);

// What meets a budget in dollars and a deadline in seconds, 0 for none: offers keep the bills that do.
std::vector<Offer> affordable(std::vector<Offer> offers, double budget, double deadline);

// Leaves out what passes a budget in dollars or a deadline in seconds, 0 for none; throws ConfigError that
// says what would be needed where nothing is left.
std::vector<Offer> within(std::vector<Offer> offers, double budget, double deadline);

}  // namespace tandem::plan
