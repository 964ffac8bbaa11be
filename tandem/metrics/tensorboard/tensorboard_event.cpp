#include "tandem/metrics/tensorboard/tensorboard_event.h"

#include <bit>
#include <chrono>
#include <cstdio>

#include "tandem/metrics/little_endian.h"
#include "tandem/metrics/protobuf.h"

namespace tandem::tensorboard {
namespace {

using protobuf::Fields;
using protobuf::Message;

// Numbers of fields, from the public schema: Event, SessionLog, Summary.Value, SummaryMetadata, TensorProto,
// HistogramProto.
enum Field : uint64_t {
  kEventWallTime = 1,
  kEventStep = 2,
  kEventFileVersion = 3,
  kEventSummary = 5,
  kEventSessionLog = 7,
  kSessionStatus = 1,
  kSummaryValue = 1,
  kValueTag = 1,
  kValueSimple = 2,
  kValueHistogram = 5,
  kValueTensor = 8,
  kValueMetadata = 9,
  kMetadataPlugin = 1,
  kPluginName = 1,
  kTensorType = 1,
  kTensorShape = 2,
  kShapeDim = 2,
  kDimSize = 1,
  kTensorStrings = 8,
  kHistogramMin = 1,
  kHistogramMax = 2,
  kHistogramNum = 3,
  kHistogramSum = 4,
  kHistogramSumSquares = 5,
  kHistogramLimits = 6,
  kHistogramCounts = 7,
};
constexpr uint64_t kSessionStart = 1;
constexpr uint64_t kTypeString = 7;

Message event(double wall_s, int64_t step) {
  Message message;
  message.real(kEventWallTime, wall_s);
  if (step != 0) message.number(kEventStep, static_cast<uint64_t>(step));
  return message;
}

// A bucket begins where the one before it ends: of those without values only such are there.
Message histogram_message(const Histogram& histogram) {
  std::string limits, counts;
  const auto add = [&](int bucket, int64_t count) {
    put_little_endian(limits, std::bit_cast<uint64_t>(bucket_limit(bucket)));
    put_little_endian(counts, std::bit_cast<uint64_t>(static_cast<double>(count)));
  };
  std::optional<int> before;
  for (const auto& [bucket, count] : histogram.counts) {
    if (before != bucket - 1) add(bucket - 1, 0);
    add(bucket, count);
    before = bucket;
  }
  return Message()
      .real(kHistogramMin, histogram.min)
      .real(kHistogramMax, histogram.max)
      .real(kHistogramNum, static_cast<double>(histogram.num))
      .real(kHistogramSum, histogram.sum)
      .real(kHistogramSumSquares, histogram.sum_squares)
      .bytes(kHistogramLimits, limits)
      .bytes(kHistogramCounts, counts);
}

bool read_value(std::string_view bytes, Event& event) {
  std::string tag;
  std::optional<float> value;
  Fields fields(bytes);
  while (fields.next()) {
    if (fields.field == kValueTag) tag = fields.bytes;
    if (fields.field == kValueSimple) value = std::bit_cast<float>(static_cast<uint32_t>(fields.number));
  }
  if (value) event.scalars.emplace_back(std::move(tag), *value);
  return fields.good;
}

}  // namespace

std::string version_event(double wall_s) {
  return event(wall_s, 0).bytes(kEventFileVersion, "brain.Event:2").text();
}

std::string start_event(double wall_s, int64_t step) {
  return event(wall_s, step)
      .message(kEventSessionLog, Message().number(kSessionStatus, kSessionStart))
      .text();
}

std::string scalars_event(const StepRecord& record) {
  Message summary;
  for (const NamedNumber& number : numbers_of(record)) {
    if (number.name == "step") continue;
    summary.message(
        kSummaryValue,
        Message().bytes(kValueTag, number.name).real(kValueSimple, static_cast<float>(number.value)));
  }
  return event(wall_time(record.time), record.step).message(kEventSummary, summary).text();
}

std::string text_event(double wall_s, int64_t step, std::string_view tag, std::string_view markdown) {
  const Message plugin = Message().bytes(kPluginName, "text");
  const Message dim = Message().number(kDimSize, 1);
  const Message tensor = Message()
                             .number(kTensorType, kTypeString)
                             .message(kTensorShape, Message().message(kShapeDim, dim))
                             .bytes(kTensorStrings, markdown);
  const Message value = Message()
                            .bytes(kValueTag, tag)
                            .message(kValueTensor, tensor)
                            .message(kValueMetadata, Message().message(kMetadataPlugin, plugin));
  return event(wall_s, step).message(kEventSummary, Message().message(kSummaryValue, value)).text();
}

std::string histograms_event(double wall_s, int64_t step, const std::vector<Histogram>& histograms) {
  Message summary;
  for (const Histogram& histogram : histograms) {
    summary.message(
        kSummaryValue,
        Message().bytes(kValueTag, histogram.name).message(kValueHistogram, histogram_message(histogram)));
  }
  return event(wall_s, step).message(kEventSummary, summary).text();
}

std::optional<Event> read_event(std::string_view bytes) {
  Event event;
  Fields fields(bytes);
  while (fields.next()) {
    if (fields.field == kEventWallTime) event.wall_s = std::bit_cast<double>(fields.number);
    if (fields.field == kEventStep) event.step = static_cast<int64_t>(fields.number);
    if (fields.field != kEventSummary) continue;
    Fields values(fields.bytes);
    while (values.next()) {
      if (values.field == kSummaryValue && !read_value(values.bytes, event)) return std::nullopt;
    }
    if (!values.good) return std::nullopt;
  }
  if (!fields.good) return std::nullopt;
  return event;
}

double wall_time(std::string_view iso8601) {
  int year = 0;
  unsigned month = 0, day = 0, hour = 0, minute = 0;
  double second = 0;
  const std::string text(iso8601);
  if (std::sscanf(text.c_str(), "%d-%u-%uT%u:%u:%lf", &year, &month, &day, &hour, &minute, &second) != 6)
    return 0;
  const std::chrono::sys_days date =
      std::chrono::year(year) / std::chrono::month(month) / std::chrono::day(day);
  return static_cast<double>(date.time_since_epoch().count()) * 86400 + hour * 3600.0 + minute * 60.0 +
         second;
}

}  // namespace tandem::tensorboard
