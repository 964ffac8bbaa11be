// A trace in the Chrome JSON format, for ui.perfetto.dev or chrome://tracing. Times are in microseconds from
// any common zero. The file appears when it is finished. One thread writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tandem {

struct TraceEvent {
  std::string name;
  std::string category;
  double ts_us = 0;
  double dur_us = 0;
  int tid = 0;
  int pid = 0;                                     // the rank
  nlohmann::json args = nlohmann::json::object();  // shown when the event is selected
};

class TraceWriter {
 public:
  explicit TraceWriter(std::filesystem::path path);
  ~TraceWriter();  // an unfinished trace is dropped
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  void name_process(int pid, std::string_view name);
  void name_thread(int pid, int tid, std::string_view name);
  void add(const TraceEvent& event);                                                 // a span of time
  void add_counter(std::string_view name, double ts_us, double value, int pid = 0);  // a curve, e.g. memory
  void finish();  // throws IoError naming the file

 private:
  void write(const nlohmann::json& object);

  std::filesystem::path path_;
  std::filesystem::path pending_;
  std::ofstream file_;
  bool empty_ = true;
};

}  // namespace tandem
