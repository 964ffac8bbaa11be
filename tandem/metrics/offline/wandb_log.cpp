#include "tandem/metrics/offline/wandb_log.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tandem/metrics/little_endian.h"
#include "tandem/metrics/protobuf.h"

namespace tandem::wandb {
namespace {

using protobuf::Fields;
using protobuf::Message;

constexpr std::string_view kIdent = ":W&B";
constexpr uint16_t kMagic = 0xBEE1;
constexpr size_t kBlock = 32 * 1024;
constexpr size_t kChunkHead = 7;  // crc32, length, kind

enum Chunk : uint8_t { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };

// Numbers of fields, from the public schema: Record, RunRecord, ConfigRecord, HistoryRecord, SummaryRecord,
// their items, RunExitRecord, Timestamp.
enum Field : uint64_t {
  kRecordNumber = 1,
  kRecordHistory = 2,
  kRecordSummary = 3,
  kRecordConfig = 5,
  kRecordRun = 17,
  kRecordExit = 18,
  kRecordFinal = 20,
  kRunId = 1,
  kRunEntity = 2,
  kRunProject = 3,
  kRunConfig = 4,
  kRunDisplayName = 8,
  kRunHost = 13,
  kRunStartTime = 17,
  kUpdate = 1,  // of a config and of a summary
  kItem = 1,    // of a history
  kHistoryStep = 2,
  kStepNumber = 1,
  kItemKey = 1,
  kItemValue = 16,
  kExitRuntime = 2,
  kSeconds = 1,
  kNanos = 2,
};

Message record(int64_t number) { return Message().number(kRecordNumber, static_cast<uint64_t>(number)); }

Message item(std::string_view key, std::string_view value_json) {
  return Message().bytes(kItemKey, key).bytes(kItemValue, value_json);
}

Message config_update(const std::string& config) {
  Message update;
  const nlohmann::json sections = nlohmann::json::parse(config);
  for (const auto& [key, value] : sections.items()) update.message(kUpdate, item(key, value.dump()));
  return update;
}

uint32_t chunk_sum(char kind, std::string_view payload) {
  const uLong begun = ::crc32(0, reinterpret_cast<const Bytef*>(&kind), 1);
  return static_cast<uint32_t>(
      ::crc32_z(begun, reinterpret_cast<const Bytef*>(payload.data()), payload.size()));
}

}  // namespace

std::string file_head() {
  std::string head(kIdent);
  put_little_endian(head, kMagic);
  return head + '\0';  // version
}

std::string framed(std::string_view record, int64_t offset) {
  std::string bytes;
  size_t at = static_cast<size_t>(offset) % kBlock;
  bool first = true;
  do {
    if (kBlock - at < kChunkHead) {
      bytes.append(kBlock - at, '\0');
      at = 0;
    }
    const std::string_view part = record.substr(0, kBlock - at - kChunkHead);
    record.remove_prefix(part.size());
    const bool last = record.empty();
    const char kind = static_cast<char>(first && last ? kFull : first ? kFirst : last ? kLast : kMiddle);
    put_little_endian(bytes, chunk_sum(kind, part));
    put_little_endian(bytes, static_cast<uint16_t>(part.size()));
    bytes += kind;
    bytes += part;
    at += kChunkHead + part.size();
    first = false;
  } while (!record.empty());
  return bytes;
}

LogReader::LogReader(std::string_view file) : file_(file) {
  const std::string head = file_head();
  if (file.starts_with(head)) {
    position_ = head.size();
  } else {
    damaged_ = !head.starts_with(file);
    file_ = {};
  }
}

std::optional<std::string> LogReader::next() {
  if (damaged_) return std::nullopt;
  return assemble();
}

std::optional<std::string> LogReader::assemble() {
  std::string record;
  bool open = false;  // its first chunk was there
  for (size_t at = position_;;) {
    if (const size_t left = kBlock - (begin_ + at) % kBlock; left < kChunkHead) at += left;
    if (at + kChunkHead > file_.size()) return std::nullopt;
    const std::string_view head = file_.substr(at, kChunkHead);
    const auto size = get_little_endian<uint16_t>(head.substr(4));
    const char kind = head[6];
    const bool begins = kind == kFull || kind == kFirst;
    if ((begin_ + at) % kBlock + kChunkHead + size > kBlock || kind < kFull || kind > kLast ||
        begins == open) {
      damaged_ = true;
      return std::nullopt;
    }
    if (at + kChunkHead + size > file_.size()) return std::nullopt;
    const std::string_view payload = file_.substr(at + kChunkHead, size);
    if (get_little_endian<uint32_t>(head) != chunk_sum(kind, payload)) {
      damaged_ = true;
      return std::nullopt;
    }
    record += payload;
    open = true;
    at += kChunkHead + size;
    if (kind == kFull || kind == kLast) {
      position_ = at;
      return record;
    }
  }
}

std::string run_record(int64_t number, const RunFacts& run) {
  const double whole = std::floor(run.start_s);
  const Message start = Message()
                            .number(kSeconds, static_cast<uint64_t>(whole))
                            .number(kNanos, static_cast<uint64_t>((run.start_s - whole) * 1e9));
  const Message message = Message()
                              .bytes(kRunId, run.id)
                              .bytes(kRunEntity, run.entity)
                              .bytes(kRunProject, run.project)
                              .message(kRunConfig, config_update(run.config))
                              .bytes(kRunDisplayName, run.name)
                              .bytes(kRunHost, run.host)
                              .message(kRunStartTime, start);
  return record(number).message(kRecordRun, message).text();
}

std::string config_record(int64_t number, const std::string& config) {
  return record(number).message(kRecordConfig, config_update(config)).text();
}

std::string history_record(int64_t number, const StepRecord& row, double wall_s, double start_s) {
  Message history;
  for (const NamedDigits& value : digits_of(row)) {
    if (value.name != "step") history.message(kItem, item(value.name, value.digits));
  }
  history.message(kItem, item("_timestamp", fmt::format("{}", wall_s)));
  history.message(kItem, item("_runtime", fmt::format("{}", std::max(wall_s - start_s, 0.0))));
  history.message(kItem, item("_step", fmt::format("{}", row.step)));
  history.message(kHistoryStep, Message().number(kStepNumber, static_cast<uint64_t>(row.step)));
  return record(number).message(kRecordHistory, history).text();
}

std::string summary_record(int64_t number, const StepRecord& row) {
  Message summary;
  for (const NamedDigits& value : digits_of(row))
    summary.message(kUpdate, item(value.name == "step" ? "_step" : value.name, value.digits));
  return record(number).message(kRecordSummary, summary).text();
}

std::string exit_record(int64_t number, double runtime_s) {
  return record(number)
      .message(kRecordExit, Message().number(kExitRuntime, static_cast<uint64_t>(std::max(runtime_s, 0.0))))
      .text();
}

std::string final_record(int64_t number) { return record(number).message(kRecordFinal, Message()).text(); }

namespace {

bool read_history(std::string_view bytes, Record& record) {
  record.kind = Record::Kind::History;
  Fields fields(bytes);
  while (fields.next()) {
    if (fields.field == kHistoryStep) {
      Fields step(fields.bytes);
      while (step.next()) {
        if (step.field == kStepNumber) record.step = static_cast<int64_t>(step.number);
      }
      if (!step.good) return false;
    } else if (fields.field == kItem) {
      Fields parts(fields.bytes);
      auto& [key, value] = record.items.emplace_back();
      while (parts.next()) {
        if (parts.field == kItemKey) key = parts.bytes;
        if (parts.field == kItemValue) value = parts.bytes;
      }
      if (!parts.good) return false;
    }
  }
  return fields.good;
}

bool read_run(std::string_view bytes, Record& record) {
  record.kind = Record::Kind::Run;
  Fields fields(bytes);
  while (fields.next()) {
    if (fields.field != kRunStartTime) continue;
    Fields time(fields.bytes);
    while (time.next()) {
      if (time.field == kSeconds) record.start_s += static_cast<double>(time.number);
      if (time.field == kNanos) record.start_s += static_cast<double>(time.number) * 1e-9;
    }
    if (!time.good) return false;
  }
  return fields.good;
}

}  // namespace

std::optional<Record> read_record(std::string_view bytes) {
  Record record;
  Fields fields(bytes);
  bool good = true;
  while (good && fields.next()) {
    switch (fields.field) {
      case kRecordNumber: record.number = static_cast<int64_t>(fields.number); break;
      case kRecordHistory: good = read_history(fields.bytes, record); break;
      case kRecordRun: good = read_run(fields.bytes, record); break;
      case kRecordExit: record.kind = Record::Kind::Exit; break;
      case kRecordFinal: record.kind = Record::Kind::Final; break;
      default: break;
    }
  }
  if (!good || !fields.good) return std::nullopt;
  return record;
}

}  // namespace tandem::wandb
