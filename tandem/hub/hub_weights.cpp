#include "tandem/hub/hub_weights.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/split_float.h"
#include "tandem/base/thread_pool.h"
#include "tandem/base/utf8.h"
#include "tandem/hub/hub_dtype.h"

namespace tandem::hub {
namespace {

constexpr int64_t kChunkElems = 1 << 16;  // on their way, for a cache

// Elements from `at` of the box on.
void store(const TensorTarget& target, int64_t at, std::span<const float> values) {
  const auto first = static_cast<size_t>(at);
  if (target.in_halves()) {
    split_floats(std::as_bytes(values), target.bytes.subspan(2 * first, 2 * values.size()),
                 target.low.subspan(2 * first, 2 * values.size()));
    return;
  }
  std::byte* dst = target.bytes.data() + first * static_cast<size_t>(dtype_bytes(target.dtype));
  if (target.dtype == DType::BF16) {  // as weights are rounded from masters
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t high = split_float(values[i]).high;
      std::memcpy(dst + 2 * i, &high, sizeof(high));
    }
    return;
  }
  from_floats(values, target.dtype, dst);
}

// An fp32 target's own memory: arenas are aligned for any type.
std::span<float> floats_at(const TensorTarget& target, size_t at, size_t elems) {
  return {reinterpret_cast<float*>(target.bytes.data()) + at, elems};
}

// Rows of a piece, so that threads share one that is large.
std::vector<TensorTarget> in_parts(const TensorTarget& target) {
  constexpr int64_t kPartElems = 1 << 20;
  const int64_t cols = std::max<int64_t>(1, target.box.cols());
  const int64_t step = std::max<int64_t>(1, kPartElems / cols);
  std::vector<TensorTarget> parts;
  for (int64_t row = target.box.row_begin; row < target.box.row_end; row += step) {
    TensorTarget part = target;
    part.box.row_begin = row;
    part.box.row_end = std::min(target.box.row_end, row + step);
    const auto cut = [&](std::span<std::byte> bytes) {
      const size_t row_bytes = bytes.size() / static_cast<size_t>(target.box.rows());
      return bytes.subspan(static_cast<size_t>(row - target.box.row_begin) * row_bytes,
                           static_cast<size_t>(part.box.rows()) * row_bytes);
    };
    part.bytes = cut(target.bytes);
    part.low = cut(target.low);
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace

HubWeights::HubWeights(const std::filesystem::path& directory, const HubFamily& family,
                       const ModelConfig& model)
    : set_(directory), prefix_(name_prefix(family)), tied_(model.tied) {
  const auto has_prefix = [&](const auto& entry) { return entry.first.starts_with(prefix_); };
  if (std::none_of(set_.by_name().begin(), set_.by_name().end(), has_prefix)) prefix_ = "";
  params_ = param_sources(family, model, prefix_);
  for (const ParamSources& param : params_) resolve(param);
  check_head(model);
  check_extra();
}

void HubWeights::resolve(const ParamSources& param) {
  std::vector<Part> parts;
  int64_t row = 0;
  for (const Source& source : param.parts) {
    const SafeTensor* tensor = set_.find(source.tensor);
    const Shape expected = param.tensor_shape(source);
    if (tensor == nullptr)
      throw DataError("{}: has no tensor '{}' ({}), which its config.json asks for", set_.path().string(),
                      source.tensor, to_string(expected));
    // A shorter context than the model's takes the first of its positions.
    const bool positions = param.name == "pos.weight" && tensor->shape.rank() == 2 &&
                           tensor->shape[0] >= expected[0] && tensor->shape[1] == expected[1];
    if (tensor->shape != expected && !positions)
      throw DataError("{}: tensor '{}': expected {} from its config.json, found {}",
                      set_.file_of(*tensor).string(), source.tensor, to_string(expected),
                      to_string(tensor->shape));
    const auto dtype = weight_dtype(tensor->dtype);
    if (!dtype)
      throw DataError("{}: tensor '{}': expected weights of F32, BF16, F16 or F64, found {}",
                      set_.file_of(*tensor).string(), source.tensor, tensor->dtype);
    parts.push_back({tensor, *dtype, row, source.rows, source.transposed});
    row += source.rows;
  }
  parts_.emplace(param.name, std::move(parts));
}

void HubWeights::check_head(const ModelConfig& model) const {
  const SafeTensor* head = set_.find(kHeadTensor);
  if (!model.tied || head == nullptr) return;
  const SafeTensor* embed = parts_.at("embed.weight").front().tensor;
  if (head->dtype == embed->dtype && head->shape == embed->shape &&
      std::memcmp(head->bytes.data(), embed->bytes.data(), embed->bytes.size()) == 0) {
    for (const SafeTensor* read : {head, embed}) release_pages(read->bytes);
    return;
  }
  throw DataError("{}: tensor '{}' differs from '{}', though config.json says tie_word_embeddings",
                  set_.file_of(*head).string(), kHeadTensor, embed->name);
}

void HubWeights::check_extra() const {
  std::set<std::string_view> known;
  for (const auto& [param, parts] : parts_) {
    for (const Part& part : parts) known.insert(part.tensor->name);
  }
  if (tied_) known.insert(kHeadTensor);
  for (const auto& [name, tensor] : set_.by_name()) {
    if (known.contains(name) || is_buffer(name)) continue;
    throw DataError("{}: holds tensor '{}' ({}), which the model of its config.json does not have",
                    set_.file_of(*tensor).string(), printable(name), to_string(tensor->shape));
  }
}

const ParamSources* HubWeights::find(std::string_view name) const {
  const auto found = std::find_if(params_.begin(), params_.end(),
                                  [&](const ParamSources& param) { return param.name == name; });
  return found == params_.end() ? nullptr : &*found;
}

DType HubWeights::dtype() const {
  std::map<DType, size_t> bytes;
  for (const auto& [param, parts] : parts_) {
    for (const Part& part : parts) bytes[part.dtype] += part.tensor->bytes.size();
  }
  const auto most = std::max_element(bytes.begin(), bytes.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? DType::F32 : most->first;
}

// Whether the target's bytes are those of the file: a bf16 is the high half of an fp32 whose low one is zero.
bool HubWeights::copies(const Part& part, const TensorTarget& target) {
  return part.dtype == target.dtype ? !target.in_halves() : part.dtype == DType::BF16 && target.in_halves();
}

// `box` is of the part: rows from its first one on. Rows that are cut into small pieces are read whole.
void HubWeights::read_rows(const Part& part, int64_t total_cols, const Box& box,
                           std::span<std::byte> dst) const {
  constexpr size_t kWorthACall = 2048;
  const auto elem = static_cast<size_t>(dtype_bytes(part.dtype));
  const size_t row_bytes = static_cast<size_t>(total_cols) * elem, first = static_cast<size_t>(box.row_begin);
  const size_t skip = static_cast<size_t>(box.col_begin) * elem, run = static_cast<size_t>(box.cols()) * elem;
  const auto rows = static_cast<size_t>(box.rows());
  if (run == row_bytes) return set_.read(*part.tensor, first * row_bytes, dst.first(rows * run));
  if (run >= kWorthACall) {
    for (size_t row = 0; row < rows; ++row)
      set_.read(*part.tensor, (first + row) * row_bytes + skip, dst.subspan(row * run, run));
    return;
  }
  std::vector<std::byte> whole(rows * row_bytes);
  set_.read(*part.tensor, first * row_bytes, whole);
  for (size_t row = 0; row < rows; ++row)
    std::memcpy(dst.data() + row * run, whole.data() + row * row_bytes + skip, run);
}

// A row of the file is a column here, which only a map gives without reading all of it: a few rows of ours at
// a time use whole cache lines of it.
void HubWeights::read_transposed(const Part& part, const TensorTarget& target, int64_t begin,
                                 int64_t end) const {
  constexpr int64_t kRows = 32;
  const int64_t elem = dtype_bytes(part.dtype), cols = target.box.cols();
  float lane[kRows];
  std::vector<float> rows(static_cast<size_t>(kRows * cols));
  expect_pages(part.tensor->bytes);
  for (int64_t row = begin; row < end; row += kRows) {
    const int64_t count = std::min(kRows, end - row);
    for (int64_t col = 0; col < cols; ++col) {
      const int64_t at = (target.box.col_begin + col) * part.rows + row - part.row_begin;
      to_floats(part.tensor->bytes.data() + at * elem, part.dtype,
                std::span(lane, static_cast<size_t>(count)));
      for (int64_t i = 0; i < count; ++i) rows[static_cast<size_t>(i * cols + col)] = lane[i];
    }
    store(target, (row - target.box.row_begin) * cols,
          std::span(rows).first(static_cast<size_t>(count * cols)));
  }
  release_pages(part.tensor->bytes);
}

void HubWeights::read(const TensorTarget& target) const {
  const auto found = parts_.find(target.name);
  TANDEM_CHECK(found != parts_.end(), "parameter '{}' is not of the directory", target.name);
  TANDEM_CHECK(target.fits(), "parameter '{}'", target.name);
  if (target.box.elems() == 0) return;
  const int64_t total_cols = whole_box(target.shape).col_end;
  const int64_t cols = target.box.cols();
  const int64_t step = std::max<int64_t>(1, kChunkElems / cols);
  std::vector<std::byte> raw;
  std::vector<float> floats;
  for (const Part& part : found->second) {
    const int64_t begin = std::max(part.row_begin, target.box.row_begin);
    const int64_t end = std::min(part.row_begin + part.rows, target.box.row_end);
    if (begin >= end) continue;
    if (part.transposed) {
      read_transposed(part, target, begin, end);
      continue;
    }
    for (int64_t row = begin; row < end; row += step) {
      const int64_t last = std::min(end, row + step);
      const Box box{row - part.row_begin, last - part.row_begin, target.box.col_begin, target.box.col_end};
      const auto elems = static_cast<size_t>(box.elems());
      const auto at = static_cast<size_t>((row - target.box.row_begin) * cols);
      if (copies(part, target)) {
        const auto elem = static_cast<size_t>(dtype_bytes(part.dtype));
        read_rows(part, total_cols, box, target.bytes.subspan(at * elem, elems * elem));
        if (target.in_halves()) std::memset(target.low.data() + at * 2, 0, elems * 2);
        continue;
      }
      raw.resize(elems * static_cast<size_t>(dtype_bytes(part.dtype)));
      read_rows(part, total_cols, box, raw);
      if (target.dtype == DType::F32 && !target.in_halves()) {
        to_floats(raw.data(), part.dtype, floats_at(target, at, elems));
        continue;
      }
      floats.resize(elems);
      to_floats(raw.data(), part.dtype, floats);
      store(target, static_cast<int64_t>(at), floats);
    }
  }
}

void HubWeights::read_all(std::span<const TensorTarget> targets, ThreadPool& pool,
                          const std::function<void(int64_t)>& told) const {
  std::vector<TensorTarget> parts;
  for (const TensorTarget& target : targets) {
    for (TensorTarget& part : in_parts(target)) parts.push_back(std::move(part));
  }
  pool.parallel_for(static_cast<int64_t>(parts.size()), [&](int64_t i, int) {
    read(parts[static_cast<size_t>(i)]);
    told(parts[static_cast<size_t>(i)].num_bytes());
  });
}

}  // namespace tandem::hub
