#include "tandem/metrics/trace.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tandem/base/error.h"

namespace tandem {

using nlohmann::json;

TraceWriter::TraceWriter(std::filesystem::path path)
    : path_(std::move(path)), pending_(path_.string() + fmt::format(".tmp-{}", ::getpid())), file_(pending_) {
  if (!file_) throw IoError("{}: cannot create: {}", pending_.string(), std::strerror(errno));
  file_ << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
}

TraceWriter::~TraceWriter() {
  std::error_code ignored;  // there is nothing to remove once it has been renamed
  std::filesystem::remove(pending_, ignored);
}

void TraceWriter::write(const json& object) {
  file_ << (empty_ ? "\n" : ",\n") << object.dump(-1, ' ', false, json::error_handler_t::replace);
  empty_ = false;
}

void TraceWriter::name_process(int pid, std::string_view name) {
  write({{"name", "process_name"}, {"ph", "M"}, {"pid", pid}, {"args", {{"name", name}}}});
}

void TraceWriter::name_thread(int pid, int tid, std::string_view name) {
  write({{"name", "thread_name"}, {"ph", "M"}, {"pid", pid}, {"tid", tid}, {"args", {{"name", name}}}});
}

void TraceWriter::add(const TraceEvent& event) {
  write({{"name", event.name},
         {"cat", event.category},
         {"ph", "X"},
         {"ts", event.ts_us},
         {"dur", event.dur_us},
         {"pid", event.pid},
         {"tid", event.tid},
         {"args", event.args}});
}

void TraceWriter::add_counter(std::string_view name, double ts_us, double value, int pid) {
  write({{"name", name}, {"ph", "C"}, {"ts", ts_us}, {"pid", pid}, {"args", {{"value", value}}}});
}

void TraceWriter::finish() {
  file_ << "\n]}\n" << std::flush;
  file_.close();
  if (!file_) throw IoError("{}: cannot write the trace; is the disk full?", path_.string());
  std::error_code error;
  std::filesystem::rename(pending_, path_, error);
  if (error) throw IoError("{}: cannot rename to {}: {}", pending_.string(), path_.string(), error.message());
}

}  // namespace tandem
