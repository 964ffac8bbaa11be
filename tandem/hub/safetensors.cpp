#include "tandem/hub/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "tandem/base/error.h"
#include "tandem/base/utf8.h"
#include "tandem/hub/hub_dtype.h"
#include "tandem/hub/strict_json.h"

namespace tandem::hub {
namespace {

using nlohmann::json;

constexpr std::string_view kMetadata = "__metadata__";

// The two numbers of a tensor's place, in bytes after the header.
struct Place {
  uint64_t begin, end;
};

struct Entry {
  SafeTensor tensor;
  Place place;
};

class HeaderReader {
 public:
  HeaderReader(const std::string& origin, uint64_t data_bytes) : origin_(origin), data_bytes_(data_bytes) {}

  Entry read(const std::string& name, const json& info) const {
    if (!info.is_object()) throw fault(name, "expected an object with dtype, shape and data_offsets");
    Entry entry;
    entry.tensor.name = name;
    const json& dtype = member(name, info, "dtype");
    if (!dtype.is_string()) throw fault(name, "dtype is no text");
    entry.tensor.dtype = dtype.get<std::string>();
    const std::optional<int64_t> bits = bits_of(entry.tensor.dtype);
    if (!bits) throw fault(name, fmt::format("unknown dtype '{}'", printable(entry.tensor.dtype)));
    const uint64_t bytes = read_shape(name, member(name, info, "shape"), *bits, entry.tensor.shape);
    entry.place = read_place(name, member(name, info, "data_offsets"));
    if (entry.place.end - entry.place.begin != bytes) {
      throw fault(name,
                  fmt::format("{} of {} has {} bytes, but data_offsets give it {}", entry.tensor.dtype,
                              to_string(entry.tensor.shape), bytes, entry.place.end - entry.place.begin));
    }
    return entry;
  }

  DataError fault(const std::string& name, const std::string& what) const {
    return DataError("{}: tensor '{}': {}", origin_, printable(name), what);
  }

 private:
  const json& member(const std::string& name, const json& info, const char* key) const {
    const auto found = info.find(key);
    if (found == info.end()) throw fault(name, fmt::format("has no {}", key));
    return *found;
  }

  // Returns the bytes.
  uint64_t read_shape(const std::string& name, const json& list, int64_t bits, Shape& shape) const {
    if (!list.is_array()) throw fault(name, "shape is no list");
    constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    std::vector<int64_t> dims;
    uint64_t elems = 1;
    for (const json& dim : list) {
      if (!dim.is_number_unsigned() || dim.get<uint64_t>() > kMost)
        throw fault(name, "shape has something else than whole numbers from 0 on");
      const auto value = dim.get<uint64_t>();
      if (__builtin_mul_overflow(elems, value, &elems) || elems > kMost)
        throw fault(name, "the product of its shape overflows");
      dims.push_back(static_cast<int64_t>(value));
    }
    shape = Shape(std::move(dims));
    uint64_t total = 0;
    if (__builtin_mul_overflow(elems, static_cast<uint64_t>(bits), &total))
      throw fault(name, "its size in bits overflows");
    if (total % 8 != 0) throw fault(name, "does not end at a whole byte");
    return total / 8;
  }

  Place read_place(const std::string& name, const json& list) const {
    if (!list.is_array() || list.size() != 2 || !list[0].is_number_unsigned() ||
        !list[1].is_number_unsigned())
      throw fault(name, "expected data_offsets of two whole numbers from 0 on");
    const Place place{list[0].get<uint64_t>(), list[1].get<uint64_t>()};
    if (place.begin > place.end)
      throw fault(name, fmt::format("data_offsets [{}, {}] run backwards", place.begin, place.end));
    if (place.end > data_bytes_) {
      throw fault(name, fmt::format("data_offsets [{}, {}] end after the file's {} bytes of data",
                                    place.begin, place.end, data_bytes_));
    }
    return place;
  }

  const std::string& origin_;
  uint64_t data_bytes_;
};

void read_metadata(const json& value, const std::string& origin,
                   std::map<std::string, std::string>* metadata) {
  if (!value.is_object()) throw DataError("{}: __metadata__ is no object", origin);
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string())
      throw DataError("{}: __metadata__ takes text only, but '{}' is {}", origin, printable(key),
                      text.type_name());
    if (metadata != nullptr) (*metadata)[key] = text.get<std::string>();
  }
}

void check_contiguous(const std::vector<Entry>& entries, const HeaderReader& reader, uint64_t data_bytes,
                      const std::string& origin) {
  uint64_t at = 0;
  for (const Entry& entry : entries) {
    const auto [begin, end] = entry.place;
    if (begin < at)
      throw reader.fault(entry.tensor.name,
                         fmt::format("begins at byte {}, inside another that ends at {}", begin, at));
    if (begin > at)
      throw reader.fault(entry.tensor.name,
                         fmt::format("begins at byte {}, after a hole from {} on", begin, at));
    at = end;
  }
  if (at != data_bytes)
    throw DataError("{}: its tensors end at byte {} of {} after the header: the file is cut or has more",
                    origin, at, data_bytes);
}

uint64_t header_bytes(std::span<const std::byte> file, const std::string& origin) {
  if (file.size() < sizeof(uint64_t))
    throw DataError("{}: is no safetensors file: it has {} bytes, fewer than its header's length takes",
                    origin, file.size());
  uint64_t length = 0;
  for (size_t i = 0; i < sizeof(length); ++i) length |= std::to_integer<uint64_t>(file[i]) << (8 * i);
  if (length > kMostHeaderBytes)
    throw DataError("{}: is no safetensors file: a header has at most {} bytes, found {}", origin,
                    kMostHeaderBytes, length);
  if (length > file.size() - sizeof(uint64_t))
    throw DataError("{}: is cut: the header should have {} bytes, but only {} are left in the file", origin,
                    length, file.size() - sizeof(uint64_t));
  return length;
}

}  // namespace

std::vector<SafeTensor> parse_safetensors(std::span<const std::byte> file, const std::string& origin,
                                          std::map<std::string, std::string>* metadata) {
  const uint64_t length = header_bytes(file, origin);
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + sizeof(length), length);
  if (!text.starts_with('{')) throw DataError("{}: the header does not begin with a brace", origin);
  const json header = parse_strictly(text, origin);
  const std::span<const std::byte> data = file.subspan(sizeof(length) + length);
  const HeaderReader reader(origin, data.size());
  std::vector<Entry> entries;
  for (const auto& [name, info] : header.items()) {
    if (name == kMetadata) {
      read_metadata(info, origin, metadata);
    } else {
      entries.push_back(reader.read(name, info));
    }
  }
  // An empty tensor lies before the one that begins where it does.
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.place.begin, a.place.end) < std::pair(b.place.begin, b.place.end);
  });
  check_contiguous(entries, reader, data.size(), origin);
  std::vector<SafeTensor> tensors;
  for (Entry& entry : entries) {
    entry.tensor.bytes = data.subspan(entry.place.begin, entry.place.end - entry.place.begin);
    tensors.push_back(std::move(entry.tensor));
  }
  return tensors;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path),
      file_(path),
      reader_(path),
      tensors_(parse_safetensors(file_.bytes(), path.string(), &metadata_)) {}

}  // namespace tandem::hub
