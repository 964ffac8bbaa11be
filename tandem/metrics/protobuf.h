// Protobuf messages as bytes. TensorBoard's and W&B's are few enough to be written by hand; names of fields
// and their numbers are with those who write them.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::protobuf {

enum Wire : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// Fields one after the other, in the order in which they are added.
class Message {
 public:
  Message& number(uint64_t field, uint64_t value);
  Message& bytes(uint64_t field, std::string_view value);
  Message& message(uint64_t field, const Message& value) { return bytes(field, value.text_); }
  Message& real(uint64_t field, double value);
  Message& real(uint64_t field, float value);
  const std::string& text() const { return text_; }

 private:
  void key(uint64_t field, Wire wire) { varint(field << 3 | wire); }
  void varint(uint64_t value);

  std::string text_;
};

// A message's fields one after the other: while (fields.next()), then `good` tells whether it was a message.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : left_(bytes) {}

  bool next();

  uint64_t field = 0;
  uint64_t number = 0;     // of a varint, or the bits of a fixed one
  std::string_view bytes;  // of a string or a message
  bool good = true;

 private:
  uint64_t varint();
  uint64_t fixed(size_t size);

  std::string_view left_;
};

}  // namespace tandem::protobuf
