// Where a pipeline stands, read from its store, and how its steps hang together: as a table, as JSON, as a
// tree in the terminal and as a picture.
#pragma once

#include <string>
#include <vector>

#include "tandem/pipeline/record.h"

namespace tandem::pipeline {

enum class Progress { Done, Running, Failed, Stopped, ToDo };
std::string_view name_of(Progress progress);  // "done", "running", "failed", "stopped", "to do"

struct StepStatus {
  Progress progress = Progress::ToDo;
  Json record;      // of a finished one, else null
  Attempt attempt;  // of one that was begun
  std::string why;  // it is to do: what differs from the last time it was done
};

std::vector<StepStatus> read_status(const Plan& plan);

std::string status_table(const Plan& plan, const std::vector<StepStatus>& status);
Json status_json(const Plan& plan, const std::vector<StepStatus>& status);

// Every step below the last of what it needs.
std::string graph_text(const Plan& plan, const std::vector<StepStatus>& status);
// Columns by how many steps come before.
std::string graph_svg(const Plan& plan, const std::vector<StepStatus>& status);

}  // namespace tandem::pipeline
