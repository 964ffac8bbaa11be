#include "tandem/metrics/online/wandb_api.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "tandem/base/clipped.h"
#include "tandem/base/error.h"
#include "tandem/http/url.h"
#include "tandem/metrics/offline/run_name.h"

namespace tandem::wandb {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::seconds kCall{20};

// Of W&B's own client's, the parts that are used here; names and types are the server's schema.
constexpr const char* kResumeStatus = R"(
query RunResumeStatus($project: String, $entity: String, $name: String!) {
  model(name: $project, entityName: $entity) {
    bucket(name: $name, missingOk: true) { id name historyLineCount historyTail summaryMetrics }
  }
})";
constexpr const char* kUpsertBucket = R"(
mutation UpsertBucket($name: String, $project: String, $entity: String, $displayName: String,
                      $config: JSONString, $host: String, $program: String) {
  upsertBucket(input: {name: $name, modelName: $project, entityName: $entity, displayName: $displayName,
                       config: $config, host: $host, jobProgram: $program}) {
    bucket { id name project { id name entity { id name } } }
    inserted
  }
})";

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// A step in a JSON object that may have NaN and Infinity in it, as W&B's lines do.
int64_t step_in(const std::string& text) {
  constexpr std::string_view kKey = "\"_step\":";
  const size_t at = text.find(kKey);
  return at == std::string::npos ? 0 : std::atoll(text.c_str() + at + kKey.size());
}

// The tail is a JSON array of the last lines, as a string.
int64_t last_step_of(const Json& bucket) {
  if (bucket.value("historyTail", Json()).is_string()) {
    const Json tail = Json::parse(bucket["historyTail"].get<std::string>(), nullptr, false);
    if (tail.is_array() && !tail.empty() && tail.back().is_string()) {
      if (const int64_t step = step_in(tail.back().get<std::string>()); step > 0) return step;
    }
  }
  if (bucket.value("summaryMetrics", Json()).is_string())
    return step_in(bucket["summaryMetrics"].get<std::string>());
  return 0;
}

// As W&B keeps it: each key has its value in an object. "t" says that a client has begun the run.
std::string config_of(const RunFacts& run) {
  Json config = {{"_wandb", {{"value", {{"t", Json::object()}}}}}};
  const Json sections = Json::parse(run.config);
  for (const auto& [key, value] : sections.items()) config[key] = {{"value", value}};
  return dump(config);
}

}  // namespace

Access access_of_environment() {
  Access access;
  access.url = from_environment("WANDB_BASE_URL", "https://api.wandb.ai");
  access.key = from_environment("WANDB_API_KEY", "");
  if (access.key.empty())
    throw ConfigError(
        "log.wandb: online needs the environment variable WANDB_API_KEY; set it, or use offline and `wandb "
        "sync`");
  if (std::any_of(access.key.begin(), access.key.end(), [](char c) { return c <= ' ' || c > '~'; }))
    throw ConfigError("environment variable WANDB_API_KEY: has characters that no key has, such as a space");
  if (!access.url.starts_with("http://") && !access.url.starts_with("https://"))
    throw ConfigError(
        "environment variable WANDB_BASE_URL: does not begin with https:// or http://; give the address of "
        "W&B's server");
  while (access.url.ends_with('/')) access.url.pop_back();
  return access;
}

Api::Api(Access access, std::function<bool()> given_up)
    : url_(std::move(access.url)),
      shown_(http::host_of(url_)),
      client_({.user_password = "api:" + access.key, .given_up = std::move(given_up)}) {}

std::string Api::post(const std::string& path, const std::string& body) {
  http::Answer answer = client_.post_json(url_ + path, body, kCall);
  if (answer.trouble.empty()) return std::move(answer.body);
  if (answer.status == 401 || answer.status == 403)
    throw IoError("W&B at {} does not accept the key of WANDB_API_KEY: {}", shown_, answer.trouble);
  throw IoError("W&B at {} is not told: {}", shown_, answer.trouble);
}

std::string Api::query(const std::string& query, const std::string& variables) {
  const Json request = {{"query", query}, {"variables", Json::parse(variables)}};
  const Json answer = Json::parse(post("/graphql", dump(request)), nullptr, false);
  if (!answer.is_object() || !answer.contains("data"))
    throw IoError("W&B at {} answers with what is no answer to a query", shown_);
  if (answer.contains("errors") && answer["errors"].is_array() && !answer["errors"].empty()) {
    const Json& error = answer["errors"].front();
    const std::string why = error.is_object() ? error.value("message", "it does not say why") : dump(error);
    throw IoError("W&B at {} refuses the run: {}", shown_, clipped(why));
  }
  return dump(answer["data"]);
}

std::optional<Known> Api::find(const RunFacts& run) {
  const Json variables = {{"project", run.project}, {"entity", or_null(run.entity)}, {"name", run.id}};
  const Json data = Json::parse(query(kResumeStatus, dump(variables)));
  const Json bucket = data.value(Json::json_pointer("/model/bucket"), Json());
  if (!bucket.is_object()) return std::nullopt;
  Known known;
  if (bucket.value("historyLineCount", Json()).is_number_integer()) known.lines = bucket["historyLineCount"];
  known.last_step = known.lines > 0 ? last_step_of(bucket) : 0;
  if (known.lines > 0 && known.last_step <= 0)
    throw IoError("W&B at {} has {} lines of run {}, and does not say of which steps", shown_, known.lines,
                  run.id);
  return known;
}

Place Api::upsert(const RunFacts& run) {
  const Json variables = {
      {"name", run.id},          {"project", run.project},   {"entity", or_null(run.entity)},
      {"displayName", run.name}, {"config", config_of(run)}, {"host", run.host},
      {"program", "tandem"}};
  const Json data = Json::parse(query(kUpsertBucket, dump(variables)));
  const Json project = data.value(Json::json_pointer("/upsertBucket/bucket/project"), Json());
  const Json entity = project.is_object() ? project.value("entity", Json()) : Json();
  if (!entity.is_object() || !entity.value("name", Json()).is_string() ||
      !project.value("name", Json()).is_string())
    throw IoError("W&B at {} does not say where run {} is", shown_, run.id);
  return {entity["name"], project["name"], run.id};
}

void Api::send(const Place& place, const Lines& lines) {
  Json request = Json::object();
  if (!lines.history.empty())
    request["files"]["wandb-history.jsonl"] = {{"offset", lines.first}, {"content", lines.history}};
  if (!lines.summary.empty())
    request["files"]["wandb-summary.json"] = {{"offset", 0}, {"content", Json::array({lines.summary})}};
  if (lines.complete) {
    request["complete"] = true;
    request["exitcode"] = 0;
  }
  const auto part = [](const std::string& text) { return "/" + http::percent_encoded(text); };
  post("/files" + part(place.entity) + part(place.project) + part(place.id) + "/file_stream", dump(request));
}

}  // namespace tandem::wandb
