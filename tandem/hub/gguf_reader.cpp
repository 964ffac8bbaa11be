#include "tandem/hub/gguf_reader.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/utf8.h"

namespace tandem::hub {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kOldestVersion = 2, kNewestVersion = 3;
constexpr uint64_t kUsualAlignment = 32, kMostKeyBytes = 65535, kMostNameBytes = 63;
constexpr uint32_t kMostDims = 4;
// The fewest bytes that a key with its value, and a tensor's entry take.
constexpr uint64_t kKeyBytes = 8 + 1 + 4 + 1, kTensorBytes = 8 + 4 + 4 + 8;

struct ScalarType {
  std::string_view name;
  uint64_t bytes;  // 0: they differ
};

// By their numbers in the file.
enum ValueNumber : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kTruth,
  kText,
  kList,
  kU64,
  kI64,
  kF64,
  kNumValueTypes
};
constexpr ScalarType kValueTypes[kNumValueTypes] = {
    {"u8", 1},   {"i8", 1},  {"u16", 2}, {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
    {"bool", 1}, {"str", 0}, {"arr", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8}};

struct TensorType {
  uint32_t number;
  std::string_view name;
  int64_t block, bytes;  // elements of a block, and its bytes
};

constexpr TensorType kTensorTypes[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},      {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},      {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},   {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},   {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36},    {41, "Q1_0", 128, 18},    {42, "Q2_0", 64, 18},
};

const TensorType* find_type(uint32_t number) {
  for (const TensorType& type : kTensorTypes) {
    if (type.number == number) return &type;
  }
  return nullptr;
}

class Parser {
 public:
  Parser(std::span<const std::byte> file, const std::string& origin) : file_(file), origin_(origin) {}

  GgufContents parse() {
    read_version();
    const auto num_tensors = number<uint64_t>("the number of tensors");
    const auto num_keys = number<uint64_t>("the number of keys");
    check_count(num_keys, kKeyBytes, "keys");
    for (uint64_t i = 0; i < num_keys; ++i) read_key();
    read_alignment();
    check_count(num_tensors, kTensorBytes, "tensors");
    for (uint64_t i = 0; i < num_tensors; ++i) read_tensor();
    place_tensors();
    return std::move(out_);
  }

 private:
  uint64_t left() const { return file_.size() - at_; }

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) const {
    throw DataError("{}: {}", origin_, fmt::format(text, std::forward<Args>(args)...));
  }

  template <typename T>
  T number(std::string_view what) {
    if (left() < sizeof(T)) refuse("is cut: {} should be at byte {}, where the file ends", what, at_);
    T value;
    std::memcpy(&value, file_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  std::string_view text(std::string_view what) {
    const auto size = number<uint64_t>(what);
    if (size > left())
      refuse("{} should have {} bytes, but only {} are left in the file", what, size, left());
    const std::string_view found(reinterpret_cast<const char*>(file_.data() + at_), size);
    at_ += size;
    return found;
  }

  void check_count(uint64_t count, uint64_t bytes, std::string_view what) const {
    if (count > left() / bytes)
      refuse("says that it has {} {}, which {} bytes cannot hold", count, what, left());
  }

  void read_version() {
    if (left() < kMagic.size() || std::memcmp(file_.data(), kMagic.data(), kMagic.size()) != 0)
      refuse("is no GGUF file: it does not begin with GGUF");
    at_ = kMagic.size();
    out_.version = number<uint32_t>("the version");
    if (out_.version >= kOldestVersion && out_.version <= kNewestVersion) return;
    refuse("expected GGUF version {} or {}, found {}{}", kOldestVersion, kNewestVersion, out_.version,
           (out_.version & 0xffff) == 0 ? ": it is of a machine with the other order of bytes" : "");
  }

  void read_key() {
    const std::string_view key = text("a key");
    if (key.empty() || key.size() > kMostKeyBytes || !is_utf8(key))
      refuse("has a key of {} bytes that is no name: expected UTF-8, 1 to {} bytes", key.size(),
             kMostKeyBytes);
    const auto type = number<uint32_t>("the type of a key");
    check_type(key, type);
    GgufValue value = type == kList ? read_array(key) : read_value(key, type);
    if (!out_.keys.emplace(key, std::move(value)).second) refuse("key '{}' is there twice", printable(key));
  }

  void check_type(std::string_view key, uint32_t type) const {
    if (type >= kNumValueTypes) refuse("key '{}' has a value of the unknown type {}", printable(key), type);
  }

  GgufValue read_array(std::string_view key) {
    const auto type = number<uint32_t>("the type of an array");
    check_type(key, type);
    if (type == kList) refuse("key '{}' has an array of arrays, which nobody reads", printable(key));
    const auto count = number<uint64_t>("the length of an array");
    const uint64_t bytes = type == kText ? sizeof(uint64_t) : kValueTypes[type].bytes;
    if (count > left() / bytes)
      refuse("key '{}' has {} of {}, which the {} bytes left cannot hold", printable(key), count,
             kValueTypes[type].name, left());
    if (type == kText) {
      for (uint64_t i = 0; i < count; ++i) text("a text of an array");
    } else {
      at_ += count * bytes;
    }
    return GgufArray{kValueTypes[type].name, count};
  }

  GgufValue read_value(std::string_view key, uint32_t type) {
    constexpr std::string_view kWhat = "a value";
    switch (type) {
      case kU8: return uint64_t{number<uint8_t>(kWhat)};
      case kI8: return int64_t{number<int8_t>(kWhat)};
      case kU16: return uint64_t{number<uint16_t>(kWhat)};
      case kI16: return int64_t{number<int16_t>(kWhat)};
      case kU32: return uint64_t{number<uint32_t>(kWhat)};
      case kI32: return int64_t{number<int32_t>(kWhat)};
      case kF32: return double{number<float>(kWhat)};
      case kU64: return number<uint64_t>(kWhat);
      case kI64: return number<int64_t>(kWhat);
      case kF64: return number<double>(kWhat);
      case kText: return std::string(text("a text"));
      default: break;
    }
    const auto flag = number<uint8_t>(kWhat);
    if (flag > 1) refuse("key '{}' is neither true nor false: its byte is {}", printable(key), flag);
    return flag == 1;
  }

  void read_alignment() {
    const auto found = out_.keys.find("general.alignment");
    if (found == out_.keys.end()) return;
    const auto* value = std::get_if<uint64_t>(&found->second);
    if (value == nullptr || !std::has_single_bit(*value) || *value > std::numeric_limits<uint32_t>::max())
      refuse("general.alignment: expected a power of two");
    alignment_ = *value;
  }

  void read_tensor() {
    GgufTensorInfo tensor;
    tensor.name = text("a tensor's name");
    if (tensor.name.empty() || tensor.name.size() > kMostNameBytes || !is_utf8(tensor.name))
      refuse("has a tensor whose name has {} bytes: expected UTF-8, 1 to {} bytes", tensor.name.size(),
             kMostNameBytes);
    if (!names_.insert(tensor.name).second) refuse("tensor '{}' is there twice", printable(tensor.name));
    read_shape(tensor);
    const auto type_number = number<uint32_t>("a tensor's type");
    const TensorType* type = find_type(type_number);
    if (type == nullptr) refuse("tensor '{}' has the unknown type {}", printable(tensor.name), type_number);
    tensor.type = type->name;
    const int64_t row = tensor.shape.rank() == 0 ? 1 : tensor.shape.last();
    if (row % type->block != 0)
      refuse("tensor '{}': rows of {} have whole blocks of {}, found {}", printable(tensor.name), type->name,
             type->block, row);
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(static_cast<uint64_t>(tensor.shape.elems() / type->block),
                               static_cast<uint64_t>(type->bytes), &bytes))
      refuse("tensor '{}': its size overflows", printable(tensor.name));
    sizes_.push_back(bytes);
    offsets_.push_back(number<uint64_t>("a tensor's place"));
    out_.tensors.push_back(std::move(tensor));
  }

  void read_shape(GgufTensorInfo& tensor) {
    const auto rank = number<uint32_t>("a tensor's shape");
    if (rank > kMostDims)
      refuse("tensor '{}' has {} dims: expected at most {}", printable(tensor.name), rank, kMostDims);
    std::vector<int64_t> dims(rank);
    int64_t elems = 1;
    for (uint32_t i = 0; i < rank; ++i) {
      const auto dim = number<uint64_t>("a tensor's shape");
      if (dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
          __builtin_mul_overflow(elems, static_cast<int64_t>(dim), &elems))
        refuse("tensor '{}': the product of its shape overflows", printable(tensor.name));
      dims[rank - 1 - i] = static_cast<int64_t>(dim);
    }
    tensor.shape = Shape(std::move(dims));
  }

  uint64_t padded(uint64_t bytes) const { return (bytes + alignment_ - 1) / alignment_ * alignment_; }

  void place_tensors() {
    if (out_.tensors.empty()) return;
    const uint64_t begin = padded(at_);
    if (begin > file_.size())
      refuse("is cut: its tensors should begin at byte {} of {}", begin, file_.size());
    const std::span<const std::byte> data = file_.subspan(begin);
    uint64_t next = 0, end = 0;
    for (size_t i = 0; i < out_.tensors.size(); ++i) {
      GgufTensorInfo& tensor = out_.tensors[i];
      if (offsets_[i] != next)
        refuse("tensor '{}' begins at byte {}, expected {}: tensors lie one behind the other",
               printable(tensor.name), offsets_[i], next);
      if (next > data.size() || sizes_[i] > data.size() - next)
        refuse("is cut: tensor '{}' has {} bytes from {} on, but the tensors have {} in all",
               printable(tensor.name), sizes_[i], next, data.size());
      tensor.bytes = data.subspan(next, sizes_[i]);
      end = next + sizes_[i];
      next = padded(end);
    }
    // A writer may leave out what fills up the last one.
    if (data.size() > next) refuse("has {} bytes behind its last tensor", data.size() - next);
  }

  std::span<const std::byte> file_;
  const std::string& origin_;
  uint64_t at_ = 0, alignment_ = kUsualAlignment;
  GgufContents out_;
  std::set<std::string, std::less<>> names_;
  std::vector<uint64_t> sizes_, offsets_;
};

}  // namespace

std::optional<int64_t> GgufContents::integer(std::string_view key) const {
  const auto found = keys.find(key);
  if (found == keys.end()) return std::nullopt;
  if (const auto* value = std::get_if<int64_t>(&found->second)) return *value;
  const auto* value = std::get_if<uint64_t>(&found->second);
  if (value == nullptr || *value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    return std::nullopt;
  return static_cast<int64_t>(*value);
}

std::optional<double> GgufContents::real(std::string_view key) const {
  const auto found = keys.find(key);
  const auto* value = found == keys.end() ? nullptr : std::get_if<double>(&found->second);
  return value == nullptr || !std::isfinite(*value) ? std::nullopt : std::optional(*value);
}

std::optional<std::string> GgufContents::text(std::string_view key) const {
  const auto found = keys.find(key);
  const auto* value = found == keys.end() ? nullptr : std::get_if<std::string>(&found->second);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<uint64_t> GgufContents::length(std::string_view key) const {
  const auto found = keys.find(key);
  const auto* value = found == keys.end() ? nullptr : std::get_if<GgufArray>(&found->second);
  return value == nullptr ? std::nullopt : std::optional(value->count);
}

GgufContents parse_gguf(std::span<const std::byte> file, const std::string& origin) {
  return Parser(file, origin).parse();
}

}  // namespace tandem::hub
