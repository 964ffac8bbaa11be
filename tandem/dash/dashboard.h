// What the page asks for and gets: lists, details and curves of the runs of some folders, as JSON, and news
// of them as server-sent events. Used by one thread.
#pragma once

#include <filesystem>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "tandem/dash/run_list.h"
#include "tandem/dash/series.h"
#include "tandem/http/server.h"

namespace tandem::dash {

class Dashboard {
 public:
  struct Options {
    std::string token;                // who does not have it gets nothing; empty: everybody has it
    std::vector<std::string> hosts;   // names that this server goes by; empty: any
    size_t memory_bytes = 120 << 20;  // of rows that are kept between requests
  };
  Dashboard(std::vector<std::filesystem::path> roots, Options options);

  http::Response answer(const http::Request& request);

  // The same for one page that holds everything: each run's row, detail, arena and curves. Throws DataError
  // where there is no run.
  Json everything(size_t points);

 private:
  class Feed;
  http::Response route(const http::Request& request);
  http::Response series_of(const http::Request& request);
  http::Response live(const http::Request& request);
  std::shared_ptr<Series> open(const std::string& id);

  Options options_;
  RunList list_;
  std::list<std::pair<std::string, std::shared_ptr<Series>>> opened_;  // the last used first
};

// {name: {s: steps, n: tokens, t: times, y: values}} of the rows of steps [from, to].
Json curves(const Series& series, const std::vector<std::string>& names, double from, double to,
            size_t points);

// The page with `data` inside it: a file of its own that asks nobody for anything.
std::string report_page(const Json& data);

}  // namespace tandem::dash
