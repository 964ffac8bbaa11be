// What a search found, as people and programs read it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tandem/plan/search.h"

namespace tandem::plan {

// "data 64 (fsdp), 16 passes of 1, recompute selective, bf16".
std::string describe(const Choice& choice);

// Why it is where it is: where the first one's time goes; what another loses against it.
std::string reason(const Choice& choice, const Choice& first);

// Keys of the config that the search has set to other values, as `key` and the value in JSON.
nlohmann::json changes(const Config& given, const Config& chosen);

// One way to pay for a choice.
struct Payment {
  size_t choice = 0;  // its index
  const Offer* offer = nullptr;
  bool spot = false;
  double hours = 0;
  double usd = 0;
  int gpus = 0;
};
// Those that no other beats in time, money and GPUs at once; the fastest first.
std::vector<Payment> front(const std::vector<Choice>& choices);

struct Totals {
  size_t candidates = 0, compiled = 0, too_large = 0;
};
std::string print(const std::vector<Choice>& choices, const Totals& totals, const Job& job);
// With the keys of the first choice's plan, and the list of all.
nlohmann::json to_json(const std::vector<Choice>& choices, const Totals& totals, const Job& job,
                       const Config& given);

}  // namespace tandem::plan
