// What is wrong with a node, and what to do about it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tandem/doctor/node.h"

namespace tandem::doctor {

struct Finding {
  bool breaks = false;  // a run would end; else it is slow, or may fail later
  std::string about;    // "disk", "clock", "link"
  std::string what;
  std::string advice;  // what to do
};

std::vector<Finding> find_problems(const Node& node);

bool any_breaks(const std::vector<Finding>& findings);
nlohmann::ordered_json to_json(const std::vector<Finding>& findings);
std::string findings_text(const std::vector<Finding>& findings);  // "nothing is wrong" where there are none

}  // namespace tandem::doctor
