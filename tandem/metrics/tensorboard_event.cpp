#include "tandem/metrics/tensorboard_event.h"

#include <bit>
#include <chrono>
#include <cstdio>

namespace tandem::tensorboard {
namespace {

// Numbers of fields, from the public schema: Event, SessionLog, Summary.Value, SummaryMetadata, TensorProto.
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
  kValueTensor = 8,
  kValueMetadata = 9,
  kMetadataPlugin = 1,
  kPluginName = 1,
  kTensorType = 1,
  kTensorShape = 2,
  kShapeDim = 2,
  kDimSize = 1,
  kTensorStrings = 8,
};
enum Wire : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

constexpr uint64_t kSessionStart = 1;
constexpr uint64_t kTypeString = 7;

class Message {
 public:
  Message& number(Field field, uint64_t value) {
    key(field, kVarint);
    varint(value);
    return *this;
  }
  Message& bytes(Field field, std::string_view value) {
    key(field, kBytes);
    varint(value.size());
    text_ += value;
    return *this;
  }
  Message& message(Field field, const Message& value) { return bytes(field, value.text_); }
  Message& real(Field field, double value) { return fixed(field, kFixed64, std::bit_cast<uint64_t>(value)); }
  Message& real(Field field, float value) { return fixed(field, kFixed32, std::bit_cast<uint32_t>(value)); }
  const std::string& text() const { return text_; }

 private:
  void key(Field field, Wire wire) { varint(field << 3 | wire); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
    text_ += static_cast<char>(value);
  }
  template <typename T>
  Message& fixed(Field field, Wire wire, T value) {
    key(field, wire);
    for (size_t i = 0; i < sizeof(T); ++i) text_ += static_cast<char>(value >> (8 * i));
    return *this;
  }

  std::string text_;
};

Message event(double wall_s, int64_t step) {
  Message message;
  message.real(kEventWallTime, wall_s);
  if (step != 0) message.number(kEventStep, static_cast<uint64_t>(step));
  return message;
}

// A message's fields one after the other.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : left_(bytes) {}

  bool next() {
    if (left_.empty()) return false;
    const uint64_t key = varint();
    field = key >> 3;
    switch (key & 7) {
      case kVarint: number = varint(); break;
      case kFixed64: number = fixed(8); break;
      case kFixed32: number = fixed(4); break;
      case kBytes: {
        const uint64_t size = varint();
        if (size > left_.size()) good = false;
        bytes = left_.substr(0, good ? size : 0);
        left_.remove_prefix(bytes.size());
        break;
      }
      default: good = false;
    }
    return good;
  }

  uint64_t field = 0;
  uint64_t number = 0;
  std::string_view bytes;
  bool good = true;

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const uint64_t byte = fixed(1);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    good = false;
    return value;
  }
  uint64_t fixed(size_t size) {
    if (left_.size() < size) {
      good = false;
      left_ = {};
      return 0;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < size; ++i) value |= uint64_t{static_cast<unsigned char>(left_[i])} << (8 * i);
    left_.remove_prefix(size);
    return value;
  }

  std::string_view left_;
};

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
