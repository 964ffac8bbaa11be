// What W&B's servers are asked and told of a run, as its own client does (core/api/graphql and
// core/internal/filestream of its public sources): a run is made or found by a GraphQL mutation, and grows by
// lines that are put at line numbers of its files. Putting the same lines twice is putting them once.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tandem/http/client.h"
#include "tandem/metrics/offline/wandb_log.h"

namespace tandem::wandb {

struct Access {
  std::string url;  // without a / at its end
  std::string key;  // a secret: it goes into the header of requests, and nowhere else
};

// WANDB_BASE_URL and WANDB_API_KEY. Throws ConfigError where there is no key, or no such URL.
Access access_of_environment();

// Where a run is on the server, which knows the entity that a key belongs to.
struct Place {
  std::string entity, project, id;
};

// What the server has of a run.
struct Known {
  int64_t lines = 0;      // of its history
  int64_t last_step = 0;  // of the last of them; 0 for none
};

// A request to add lines. All of them may be none: then it says that the run is alive.
struct Lines {
  int64_t first = 0;                 // line number of the first
  std::vector<std::string> history;  // JSON objects
  std::string summary;               // a JSON object; empty for none
  bool complete = false;             // the run is done
};

// Every call throws IoError, which names the server and never the key.
class Api {
 public:
  Api(Access access, std::function<bool()> given_up);

  std::optional<Known> find(const RunFacts& run);  // nothing where there is no such run
  Place upsert(const RunFacts& run);               // makes it, or brings its config up to date
  void send(const Place& place, const Lines& lines);

 private:
  std::string post(const std::string& path, const std::string& body);
  std::string query(const std::string& query, const std::string& variables);

  std::string url_, shown_;
  http::Client client_;
};

}  // namespace tandem::wandb
