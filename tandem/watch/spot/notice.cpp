#include "tandem/watch/spot/notice.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tandem/base/error.h"

namespace tandem::spot {
namespace {

// What the clouds promise at the least, where they do not say when.
constexpr double kGcpNotice_s = 30;
constexpr double kAzurePreempt_s = 30;

nlohmann::json parse_json(const std::string& body, std::string_view cloud) {
  nlohmann::json json = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) throw DataError("{}: the metadata server's answer is no JSON", cloud);
  return json;
}

std::string text_of(const nlohmann::json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool takes_the_machine(const std::string& azure_type) {
  return azure_type == "Preempt" || azure_type == "Terminate" || azure_type == "Redeploy" ||
         azure_type == "Reboot";
}

bool names(const nlohmann::json& resources, const std::string& own_name) {
  if (!resources.is_array() || own_name.empty()) return true;  // it cannot be told whom it is about
  return std::find(resources.begin(), resources.end(), own_name) != resources.end();
}

}  // namespace

std::optional<double> parse_time(std::string_view text) {
  const std::string copy(text);
  for (const char* format : {"%Y-%m-%dT%H:%M:%SZ", "%a, %d %b %Y %H:%M:%S GMT"}) {
    std::tm time{};
    const char* end = strptime(copy.c_str(), format, &time);
    if (end != nullptr && *end == '\0') return static_cast<double>(timegm(&time));
  }
  return std::nullopt;
}

std::optional<Notice> parse_aws_action(const std::string& body) {
  const nlohmann::json json = parse_json(body, "AWS");
  const std::string action = text_of(json, "action"), time = text_of(json, "time");
  if (action.empty()) throw DataError("AWS: the instance action has no \"action\"");
  Notice notice{fmt::format("AWS: {} at {}", action, time.empty() ? "an unknown time" : time),
                parse_time(time)};
  return notice;
}

std::optional<Notice> parse_gcp_preempted(const std::string& body, double now_s) {
  const size_t end = body.find_last_not_of(" \r\n");
  const std::string word = end == std::string::npos ? "" : body.substr(0, end + 1);
  if (word == "FALSE") return std::nullopt;
  if (word != "TRUE") throw DataError("Google: 'preempted' is neither TRUE nor FALSE");
  return Notice{"Google: preempted", now_s + kGcpNotice_s};
}

std::optional<Notice> parse_azure_events(const std::string& body, const std::string& own_name, double now_s) {
  const nlohmann::json json = parse_json(body, "Azure");
  const auto events = json.is_object() ? json.find("Events") : json.end();
  if (events == json.end() || !events->is_array()) throw DataError("Azure: the answer has no list of Events");
  std::optional<Notice> soonest;
  for (const nlohmann::json& event : *events) {
    const std::string type = text_of(event, "EventType");
    if (!takes_the_machine(type) || !names(event.value("Resources", nlohmann::json()), own_name)) continue;
    const std::string before = text_of(event, "NotBefore");  // empty once it has started
    std::optional<double> at = parse_time(before);
    if (!at && type == "Preempt") at = now_s + kAzurePreempt_s;
    if (!at && text_of(event, "EventStatus") == "Started") at = now_s;
    if (soonest && (!at || (soonest->at_s && *soonest->at_s <= *at))) continue;
    soonest = Notice{fmt::format("Azure: {}{}", type, before.empty() ? "" : " not before " + before), at};
  }
  return soonest;
}

Notice parse_file(const std::string& path, const std::string& content, double changed_s) {
  Notice notice{fmt::format("{} is there", path)};
  std::istringstream words(content);
  if (double seconds = 0; words >> seconds && seconds >= 0) notice.at_s = changed_s + seconds;
  return notice;
}

}  // namespace tandem::spot
