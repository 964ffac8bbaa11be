#include "tandem/metrics/run_status.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "tandem/base/error.h"
#include "tandem/base/system.h"
#include "tandem/metrics/offline/run_name.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }
Json number(float value) { return std::isfinite(value) ? Json(shortest_double(value)) : Json(); }

double share(double part, double whole) { return whole > 0 ? std::clamp(part / whole, 0.0, 1.0) : 0; }

Json rank_json(const RankFigures& figures, const RunStatus& status) {
  Json rank = {{"rank", figures.rank}, {"step", figures.step}};
  if (!figures.node.empty()) rank["node"] = figures.node;
  if (figures.pid > 0) rank["pid"] = figures.pid;
  rank["state"] = figures.step == 0 ? "starting" : status.slow == figures.rank ? "slow" : status.state;
  rank["step_ms"] = number(figures.step_ms);
  const double data = share(figures.data_wait_ms, figures.step_ms);
  const double wait = share(figures.comm_wait_ms, figures.step_ms);
  rank["compute"] = std::max(0.0, 1 - data - wait);
  rank["wait"] = wait;
  rank["data_wait"] = data;
  rank["rss_bytes"] = figures.rss_bytes;
  rank["device_bytes"] = figures.device_bytes;
  return rank;
}

// Where each rank is, of all that the launcher sees. A rank that has written no row yet has no other figures.
void add_places(Json& ranks, const RunStatus& status) {
  const Json places = Json::parse(status.places, nullptr, false);
  if (!places.is_array()) return;
  for (const Json& place : places) {
    if (!place.is_object() || !place.contains("rank")) continue;
    Json* found = nullptr;
    for (Json& rank : ranks) {
      if (rank["rank"] == place["rank"]) found = &rank;
    }
    if (found == nullptr) {
      found = &ranks.emplace_back(Json::object());
      for (const char* key : {"rank", "step", "node", "pid"}) (*found)[key] = place.value(key, Json());
    }
    const bool keeps_state = status.state != "running" || (*found)["state"] == "slow";
    for (const char* key : {"state", "command", "block", "waiting_for", "since_s"}) {
      if (!place.contains(key) || (keeps_state && std::string_view(key) == "state" && found->contains(key)))
        continue;
      (*found)[key] = place[key];
    }
  }
}

Json status_json(const std::filesystem::path& run_dir, const RunStatus& status) {
  const StepRecord& record = status.record;
  Json json = {{"run", run_name(run_dir)}, {"state", status.state}};
  if (!status.message.empty()) json["message"] = status.message;
  json["step"] = record.step;
  json["of"] = status.of;
  if (record.step > 0) {
    json["loss"] = number(record.loss);
    json[std::string(rate_key(record.unit))] = number(record.per_s);
    json["step_ms"] = number(record.step_ms);
    json["mfu"] = number(record.mfu);
  }
  if (status.eval_loss) json["eval_loss"] = number(*status.eval_loss);
  json["eta_s"] = status.eta_s ? number(*status.eta_s) : Json();
  json["last_checkpoint"] = status.last_checkpoint > 0 ? Json(status.last_checkpoint) : Json();
  json["device"] = status.device;
  json["host"] = hostname();
  json["pid"] = ::getpid();
  json["time"] = utc_time();
  json["ranks"] = Json::array();
  for (const RankFigures& figures : status.ranks) json["ranks"].push_back(rank_json(figures, status));
  if (!status.places.empty()) add_places(json["ranks"], status);
  return json;
}

}  // namespace

void write_status(const std::filesystem::path& run_dir, const RunStatus& status) {
  const std::filesystem::path path = run_dir / "status.json", draft = run_dir / ".status.json.new";
  std::ofstream file(draft, std::ios::trunc);
  file << status_json(run_dir, status).dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(draft, path, error);
  if (!file || error) {
    std::filesystem::remove(draft, error);
    throw IoError("{}: cannot be written", path.string());
  }
}

}  // namespace tandem
