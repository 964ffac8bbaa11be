// One run that is hurt once, brought to its end, and compared with one that was not.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tandem/chaos/fault.h"

namespace tandem::chaos {

struct Setup {
  std::string program;              // this one
  std::vector<std::string> config;  // what follows `train`: CONFIG and its --set
  int num_ranks = 1;
  std::filesystem::path directory;  // where trials live, and the undisturbed run
  std::filesystem::path library;    // what makes calls fail; empty: neither disk nor net
  double stop_s = 2;                // how long a lone rank is stopped; others give a stopped one up
};

struct Outcome {
  Fault fault;
  bool survived = false;
  std::string what;   // "killed rank 1 after 0.8 s"
  std::string wrong;  // what does not hold; empty where it survived
  double seconds = 0;
};

// Trains undisturbed; returns the seconds that it took. Throws TrainError with the last lines where it fails.
double run_undisturbed(const Setup& setup);

// Leaves the trial's directory where it did not survive.
Outcome run_trial(const Setup& setup, const Fault& fault, int64_t number, double undisturbed_s);

std::filesystem::path trial_directory(const Setup& setup, int64_t number);

}  // namespace tandem::chaos
