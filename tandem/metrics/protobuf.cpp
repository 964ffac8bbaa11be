#include "tandem/metrics/protobuf.h"

#include "tandem/metrics/little_endian.h"

namespace tandem::protobuf {

Message& Message::number(uint64_t field, uint64_t value) {
  key(field, kVarint);
  varint(value);
  return *this;
}

Message& Message::bytes(uint64_t field, std::string_view value) {
  key(field, kBytes);
  varint(value.size());
  text_ += value;
  return *this;
}

Message& Message::real(uint64_t field, double value) {
  key(field, kFixed64);
  put_little_endian(text_, std::bit_cast<uint64_t>(value));
  return *this;
}

Message& Message::real(uint64_t field, float value) {
  key(field, kFixed32);
  put_little_endian(text_, std::bit_cast<uint32_t>(value));
  return *this;
}

void Message::varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
  text_ += static_cast<char>(value);
}

bool Fields::next() {
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

uint64_t Fields::varint() {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const uint64_t byte = fixed(1);
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  good = false;
  return value;
}

uint64_t Fields::fixed(size_t size) {
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

}  // namespace tandem::protobuf
