#include "tandem/dash/dashboard.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "tandem/base/error.h"
#include "tandem/base/sha256.h"
#include "tandem/dash/arena_picture.h"
#include "tandem/dash/page_files.h"
#include "tandem/dash/run_detail.h"
#include "tandem/dash/timeline.h"

namespace tandem::dash {
namespace {

constexpr size_t kMostPoints = 20000;
constexpr size_t kMostNews = 400;  // rows; then the client asks anew
constexpr int64_t kMostTrace = 64 << 20;
constexpr std::string_view kCookie = "tandem_token";

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

http::Response json_answer(const Json& json) {
  http::Response response;
  response.type = "application/json";
  response.body = text_of(json);
  return response;
}

http::Response refusal(int status, std::string_view why) {
  http::Response response;
  response.status = status;
  response.body = fmt::format("{}\n", why);
  return response;
}

// Names with commas between them, each encoded: runs and sets may be called with commas themselves.
std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> found;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view word = std::string_view(text).substr(begin, end - begin);
    if (end > begin) found.push_back(http::percent_decoded(word, false).value_or(std::string(word)));
    begin = end + 1;
  }
  return found;
}

double number_or(const std::string& text, double otherwise) {
  double value = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return std::isnan(value) ? otherwise : value;
}

// Names of hosts have no port; the port is not what rebinding a name changes.
std::string host_of(const std::string& header) {
  const size_t bracket = header.rfind(']');
  const size_t colon = header.rfind(':');
  const bool has_port = colon != std::string::npos && (bracket == std::string::npos || colon > bracket);
  return has_port ? header.substr(0, colon) : header;
}

std::string cookie_of(const http::Request& request) {
  const std::string cookies = "; " + request.header("cookie");
  const std::string name = fmt::format("; {}=", kCookie);
  const size_t at = cookies.find(name);
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size();
  return cookies.substr(begin, cookies.find(';', begin) - begin);
}

template <typename Values>
Json picked(const Values& values, const std::vector<uint32_t>& rows) {
  Json array = Json::array();
  for (uint32_t row : rows) array.push_back(std::isfinite(values[row]) ? Json(values[row]) : Json());
  return array;
}

Json column_picked(std::span<const float> values, const std::vector<uint32_t>& rows) {
  Json array = Json::array();
  for (uint32_t row : rows) {
    // The shortest digits that give back the float.
    double value = 0;
    const std::string digits = fmt::format("{}", values[row]);
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    array.push_back(std::isfinite(value) ? Json(value) : Json());
  }
  return array;
}

Json curve(const Series& series, std::span<const float> values, const std::vector<uint32_t>& rows) {
  return {{"s", picked(series.steps(), rows)},
          {"n", picked(series.counts(), rows)},
          {"t", picked(series.times(), rows)},
          {"y", column_picked(values, rows)}};
}

void add_headers(http::Response& response) {
  response.headers.insert(
      response.headers.end(),
      {{"Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
       {"X-Content-Type-Options", "nosniff"},
       {"Referrer-Policy", "no-referrer"},
       {"Cross-Origin-Resource-Policy", "same-origin"},
       {"Cache-Control", "no-store"}});
}

Json timeline_of(const RunFolder& run) {
  return timeline(nlohmann::json::parse(run.text("trace.json", kMostTrace), nullptr, false));
}

}  // namespace

Json curves(const Series& series, const std::vector<std::string>& names, double from, double to,
            size_t points) {
  const auto steps = series.steps();
  const auto begin = static_cast<size_t>(std::lower_bound(steps.begin(), steps.end(), from) - steps.begin());
  const auto end = static_cast<size_t>(std::upper_bound(steps.begin(), steps.end(), to) - steps.begin());
  Json found = Json::object();
  for (const std::string& name : names) {
    const auto values = series.column(name);
    if (!values.empty()) found[name] = curve(series, values, downsample(values, begin, end, points));
  }
  return found;
}

Dashboard::Dashboard(std::vector<std::filesystem::path> roots, Options options)
    : options_(std::move(options)), list_(std::move(roots)) {}

http::Response Dashboard::answer(const http::Request& request) {
  http::Response response;
  const std::string host = host_of(request.header("host"));
  if (!options_.hosts.empty() &&
      std::find(options_.hosts.begin(), options_.hosts.end(), host) == options_.hosts.end()) {
    response = refusal(421, "this server goes by another name; a page of somebody else's may be asking");
  } else if (!options_.token.empty() && request.path == "/" &&
             equal_secretly(request.param("token"), options_.token)) {
    response = refusal(200, "");
    response.type = "text/html; charset=utf-8";
    response.body = page_file("index.html");
    response.headers.emplace_back(
        "Set-Cookie", fmt::format("{}={}; HttpOnly; SameSite=Strict; Path=/", kCookie, options_.token));
  } else if (!options_.token.empty() && !equal_secretly(cookie_of(request), options_.token)) {
    response = refusal(401, "open the address with the token that tandem dash has printed");
  } else {
    response = route(request);
  }
  add_headers(response);
  return response;
}

http::Response Dashboard::route(const http::Request& request) {
  const std::string& path = request.path;
  if (!path.starts_with("/api/")) {
    const std::string name = path == "/" ? "index.html" : path.substr(1);
    http::Response response;
    response.body = page_file(name);
    response.type = name.ends_with(".js")    ? "text/javascript; charset=utf-8"
                    : name.ends_with(".css") ? "text/css; charset=utf-8"
                    : name.ends_with(".svg") ? "image/svg+xml"
                                             : "text/html; charset=utf-8";
    return response.body.empty() ? refusal(404, "no such page") : response;
  }
  list_.refresh();
  if (path == "/api/runs") return json_answer(list_.rows());
  if (path == "/api/live") return live(request);
  const RunFolder* run = list_.find(request.param("id"));
  if (run == nullptr) return refusal(404, "no such run");
  if (path == "/api/run") {
    Json detail = run_detail(*run);
    detail["names"] = open(request.param("id"))->names();
    return json_answer(detail);
  }
  if (path == "/api/series") return series_of(request);
  if (path == "/api/arena") {
    const std::string text = run->text("plan.json", kMostPlan);
    return json_answer(arena_picture(nlohmann::json::parse(text, nullptr, false)));
  }
  if (path == "/api/timeline") return json_answer(timeline_of(*run));
  return refusal(404, "no such page");
}

std::shared_ptr<Series> Dashboard::open(const std::string& id) {
  const RunFolder* run = list_.find(id);
  auto at =
      std::find_if(opened_.begin(), opened_.end(), [&](const auto& entry) { return entry.first == id; });
  if (at == opened_.end()) {
    const auto file = run == nullptr ? std::nullopt : run->file("metrics.jsonl");
    opened_.emplace_front(id, std::make_shared<Series>(file.value_or(std::filesystem::path())));
  } else {
    opened_.splice(opened_.begin(), opened_, at);
  }
  const std::shared_ptr<Series> series = opened_.front().second;
  series->update();
  size_t bytes = 0;
  for (auto entry = opened_.begin(); entry != opened_.end();) {
    bytes += entry->second->memory_bytes() + 1024;
    const bool keep = entry == opened_.begin() || bytes <= options_.memory_bytes;
    entry = keep ? std::next(entry) : opened_.erase(entry);
  }
  return series;
}

http::Response Dashboard::series_of(const http::Request& request) {
  const double infinite = std::numeric_limits<double>::infinity();
  const double points = std::clamp(number_or(request.param("points"), 1000), 4.0, double{kMostPoints});
  return json_answer(curves(*open(request.param("id")), words(request.param("names")),
                            number_or(request.param("from"), -infinite),
                            number_or(request.param("to"), infinite), static_cast<size_t>(points)));
}

// What one client has been told, and what is new since then.
class Dashboard::Feed {
 public:
  Feed(Dashboard& dashboard, std::vector<std::string> ids) : dashboard_(dashboard) {
    for (std::string& id : ids) {
      if (dashboard_.list_.find(id) != nullptr && runs_.size() < 32)
        runs_.push_back({std::move(id), {}, 0, 0, {}});
    }
    for (Watched& run : runs_) {
      run.series = dashboard_.open(run.id);
      run.told = run.series->size();
      run.last = run.told > 0 ? run.series->steps()[run.told - 1] : 0;
    }
  }

  std::string news() {
    dashboard_.list_.refresh();
    std::string text;
    const std::string list = text_of(dashboard_.list_.rows());
    if (list != list_) text += event("runs", list);
    list_ = list;
    for (Watched& run : runs_) text += news_of(run);
    return text;
  }

 private:
  struct Watched {
    std::string id;
    std::shared_ptr<Series> series;
    size_t told;
    double last;  // the step of that row
    std::string stamp;
  };

  static std::string event(std::string_view name, const std::string& data) {
    return fmt::format("event: {}\ndata: {}\n\n", name, data);
  }

  std::string news_of(Watched& run) {
    std::string text;
    Series& series = *run.series;
    series.update();
    const bool restarted =
        series.size() < run.told || (run.told > 0 && series.steps()[run.told - 1] != run.last);
    if (restarted || series.size() > run.told + kMostNews) {
      text += event("reset", text_of({{"id", run.id}}));
    } else if (series.size() > run.told) {
      text += event("rows", text_of({{"id", run.id}, {"rows", rows_since(series, run.told)}}));
    }
    run.told = series.size();
    run.last = run.told > 0 ? series.steps()[run.told - 1] : 0;
    const RunFolder* folder = dashboard_.list_.find(run.id);
    if (folder == nullptr) return text;
    std::string stamp;
    for (const char* name : {"events.jsonl", "summary.json", "logs/rank-0.jsonl"}) {
      std::error_code missing;
      stamp += fmt::format("{} ", std::filesystem::file_size(folder->path() / name, missing));
    }
    if (!run.stamp.empty() && stamp != run.stamp) text += event("detail", text_of({{"id", run.id}}));
    run.stamp = stamp;
    return text;
  }

  static Json rows_since(const Series& series, size_t begin) {
    Json found = Json::object();
    for (const std::string& name : series.names()) {
      const auto values = series.column(name);
      std::vector<uint32_t> rows;
      for (size_t i = begin; i < values.size(); ++i) {
        if (std::isfinite(values[i])) rows.push_back(static_cast<uint32_t>(i));
      }
      if (!rows.empty()) found[name] = curve(series, values, rows);
    }
    return found;
  }

  Dashboard& dashboard_;
  std::vector<Watched> runs_;
  std::string list_;
};

http::Response Dashboard::live(const http::Request& request) {
  http::Response response;
  response.type = "text/event-stream";
  response.events = [feed = std::make_shared<Feed>(*this, words(request.param("ids")))] {
    return feed->news();
  };
  return response;
}

Json Dashboard::everything(size_t points) {
  list_.refresh();
  if (list_.rows().empty())
    throw DataError("no run is there; expected a run's directory or a folder of runs");
  Json all = {{"runs", list_.rows()},
              {"detail", Json::object()},
              {"series", Json::object()},
              {"arena", Json::object()},
              {"timeline", Json::object()}};
  for (const auto& [id, run] : list_.runs()) {
    const auto series = open(id);
    const double infinite = std::numeric_limits<double>::infinity();
    all["detail"][id] = run_detail(run);
    all["detail"][id]["names"] = series->names();
    all["series"][id] = curves(*series, series->names(), -infinite, infinite, points);
    all["timeline"][id] = timeline_of(run);
    all["arena"][id] = arena_picture(nlohmann::json::parse(run.text("plan.json", kMostPlan), nullptr, false));
  }
  return all;
}

std::string report_page(const Json& data) {
  // Nothing in a value may end the script that it stands in.
  std::string text = text_of(data);
  for (size_t at = 0; (at = text.find('<', at)) != std::string::npos;) text.replace(at, 1, "\\u003c");
  std::string page = page_file("index.html");
  const auto put = [&](std::string_view mark, const std::string& with) {
    const size_t at = page.find(mark);
    TANDEM_CHECK(at != std::string::npos, "the page has no {}", mark);
    page.replace(at, mark.size(), with);
  };
  put("<link rel=\"stylesheet\" href=\"style.css\">",
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'; img-src data:\">\n<style>\n" +
          page_file("style.css") + "</style>");
  for (const char* name : {"format.js", "chart.js", "arena.js", "timeline.js", "app.js"}) {
    put(fmt::format("<script src=\"{}\"></script>", name), "<script>\n" + page_file(name) + "</script>");
  }
  put("<script id=\"data\" type=\"application/json\"></script>",
      "<script id=\"data\" type=\"application/json\">" + text + "</script>");
  return page;
}

}  // namespace tandem::dash
