// Runs the programs of every kind of rank against each other, as the machines would: each stream runs its
// items in order, an item waits for those it names, a side stream's item for the computation before it, a
// recv for its send, an all-reduce of the world for the last rank. Ranks that differ only by their place on
// the data or tensor axis are alike in time, so that one of each pipeline stage stands for all.
#pragma once

#include <functional>
#include <span>

#include "tandem/plan/program.h"

namespace tandem::plan {

// One run of an executable, or of a part of it. The next begins when all streams are done, or, where it is a
// part and does not join them, at once.
struct Run {
  const std::vector<Item>* items = nullptr;
  int times = 1;
  bool joins = true;
};
using Program = std::vector<Run>;

// Seconds of a rank's step by what they went to. They add up to the step.
struct TimeParts {
  double compute = 0;
  double comm_data = 0;
  double comm_tensor = 0;
  double comm_pipeline = 0;
  double bubble = 0;  // waiting for other stages
  double host = 0;    // launches, copies and optimizers on the CPU
  double data = 0;    // waiting for samples
  double total() const { return compute + comm_data + comm_tensor + comm_pipeline + bubble + host + data; }
};

inline constexpr double TimeParts::*kTimeParts[] = {
    &TimeParts::compute, &TimeParts::comm_data, &TimeParts::comm_tensor, &TimeParts::comm_pipeline,
    &TimeParts::bubble,  &TimeParts::host,      &TimeParts::data};

// Bytes that a rank sends in a step.
struct LinkBytes {
  double within_node = 0;
  double between_nodes = 0;
};

struct RankTime {
  TimeParts parts;
  LinkBytes sent;
};

struct Simulation {
  double seconds = 0;
  std::vector<RankTime> ranks;  // of each program
};

struct SimulationOptions {
  double launch = 0;         // s before each item of the computation
  double issue = 0;          // s of the CPU for each item of the computation, one after the other
  double slowdown = 0.15;    // of computation beside a collective: they share memory and multiprocessors
  double step_overhead = 0;  // s of the host at the end
  // Called for each item: which rank, when it began and ended; may be empty.
  std::function<void(int rank, const Item& item, double begin, double end)> observe = {};
};

// programs[i] is that of pipeline stage i.
Simulation simulate(std::span<const Program> programs, const SimulationOptions& options);

}  // namespace tandem::plan
