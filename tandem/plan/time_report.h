// A plan in time as people and programs read it.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tandem/config/config.h"
#include "tandem/plan/time_plan.h"

namespace tandem::plan {

std::string print(const TimePlan& plan, const Config& config);
nlohmann::json to_json(const TimePlan& plan);

// Collects what a simulation tells and writes it as a trace for Perfetto: a process for each pipeline stage,
// a thread for each stream.
class TimelineTrace {
 public:
  explicit TimelineTrace(std::filesystem::path path) : path_(std::move(path)) {}
  void add(int stage, const Item& item, double begin, double end);
  void finish(int stages);  // throws IoError naming the file

 private:
  struct Span {
    int stage;
    int stream;
    std::string name;
    std::string category;
    int block;
    double begin, end;
  };
  std::filesystem::path path_;
  std::vector<Span> spans_;
};

}  // namespace tandem::plan
