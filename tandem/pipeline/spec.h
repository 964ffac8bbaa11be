// A pipeline's file as it is written: steps, what each reads, runs and writes (docs/pipelines.md). Whatever
// is wrong with it is one ConfigError that starts with `file:line`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tandem/pipeline/condition.h"

namespace tandem::pipeline {

enum class Where { Local, Slurm, Kubernetes };
std::string_view name_of(Where where);  // "local", "slurm", "kubernetes"

// What a step asks of its cluster, in the words of docs/pipelines.md; of each only what is for its kind.
struct ClusterSpec {
  int64_t gpus = 0, cpus = 0;  // 0: none, what the cluster gives
  std::string memory, program;
  std::string time, partition, account, qos, constraint;    // Slurm
  std::string image, space, context, service_account, shm;  // Kubernetes
  std::vector<std::string> claims, env_secrets, selectors, tolerations;
  int64_t user = 0;  // 0: who runs the pipeline
};

struct StepSpec {
  std::string name;
  std::string place;  // "pipeline.yaml:7: train", for messages
  bool shell = false;
  std::vector<std::string> words;  // with placeholders; of a shell's step one, the script
  std::vector<std::string> in;
  std::string out;  // empty: none
  std::vector<std::string> needs;
  std::vector<std::pair<std::string, std::vector<std::string>>> foreach;
  Condition when;
  int64_t retries = 0;
  double timeout_s = 0;  // 0: none
  Where where = Where::Local;
  ClusterSpec cluster;
  std::optional<bool> resume;  // whether it goes on from what a killed one left; by its words if not given
};

using Values = std::map<std::string, std::string, std::less<>>;

struct Spec {
  std::filesystem::path file;
  std::filesystem::path folder;     // the file's: paths are relative to it, and commands run in it
  std::string store = "artifacts";  // a directory
  std::string remote;               // "s3://bucket/prefix", where all that is made is kept; empty: nowhere
  Values params;
  std::vector<StepSpec> steps;
};

// `params` ("name=value") go over those of the file.
Spec read_spec(const std::filesystem::path& file, std::span<const std::string> params = {});

// "90", "90s", "15m", "2h" or "1d" in seconds.
std::optional<double> parse_time_span(std::string_view text);

}  // namespace tandem::pipeline
