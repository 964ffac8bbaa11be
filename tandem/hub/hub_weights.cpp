#include "tandem/hub/hub_weights.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/split_float.h"
#include "tandem/base/utf8.h"
#include "tandem/hub/hub_dtype.h"

namespace tandem::hub {
namespace {

constexpr int64_t kChunkElems = 1 << 16;  // of floats on their way, for a cache

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

// `box` is of the part: rows from its first one on.
void HubWeights::read_floats(const Part& part, int64_t total_cols, const Box& box,
                             std::span<float> dst) const {
  const int64_t elem = dtype_bytes(part.dtype);
  const std::byte* bytes = part.tensor->bytes.data();
  const auto at = [&](int64_t index) { return bytes + index * elem; };
  if (!part.transposed) {
    if (box.cols() == total_cols) return to_floats(at(box.row_begin * total_cols), part.dtype, 1, dst);
    for (int64_t row = 0; row < box.rows(); ++row) {
      to_floats(at((box.row_begin + row) * total_cols + box.col_begin), part.dtype, 1,
                dst.subspan(static_cast<size_t>(row * box.cols()), static_cast<size_t>(box.cols())));
    }
    return;
  }
  // A row of the file is a column here: a few rows of ours at a time use whole cache lines of it.
  constexpr int64_t kRows = 32;
  float lane[kRows];
  for (int64_t row = 0; row < box.rows(); row += kRows) {
    const int64_t rows = std::min(kRows, box.rows() - row);
    for (int64_t col = 0; col < box.cols(); ++col) {
      to_floats(at((box.col_begin + col) * part.rows + box.row_begin + row), part.dtype, 1,
                std::span(lane, static_cast<size_t>(rows)));
      for (int64_t i = 0; i < rows; ++i) dst[static_cast<size_t>((row + i) * box.cols() + col)] = lane[i];
    }
  }
}

// Whether the target's 16 bits are those of the file: a bf16 is the high half of an fp32 whose low one is
// zero.
bool HubWeights::copies(const Part& part, const TensorTarget& target) {
  return part.dtype == DType::BF16 && !part.transposed && (target.in_halves() || target.dtype == DType::BF16);
}

void HubWeights::copy_rows(const Part& part, int64_t total_cols, int64_t row_begin, int64_t row_end,
                           const TensorTarget& target) {
  const Box& box = target.box;
  const bool whole = box.cols() == total_cols;  // then all rows are one run
  const int64_t runs = whole ? 1 : row_end - row_begin;
  const auto bytes = static_cast<size_t>((whole ? row_end - row_begin : 1) * box.cols() * 2);
  for (int64_t run = 0; run < runs; ++run) {
    const auto from =
        static_cast<size_t>(((row_begin - part.row_begin + run) * total_cols + box.col_begin) * 2);
    const auto to = static_cast<size_t>((row_begin - box.row_begin + run) * box.cols() * 2);
    std::memcpy(target.bytes.data() + to, part.tensor->bytes.data() + from, bytes);
    if (target.in_halves()) std::memset(target.low.data() + to, 0, bytes);
  }
}

// Of the file, for some rows of the parameter.
std::span<const std::byte> HubWeights::bytes_of(const Part& part, int64_t total_cols, int64_t row_begin,
                                                int64_t row_end) {
  if (part.transposed) return part.tensor->bytes;
  const int64_t row_bytes = total_cols * dtype_bytes(part.dtype);
  return part.tensor->bytes.subspan(static_cast<size_t>((row_begin - part.row_begin) * row_bytes),
                                    static_cast<size_t>((row_end - row_begin) * row_bytes));
}

void HubWeights::read(const TensorTarget& target) const {
  const auto found = parts_.find(target.name);
  TANDEM_CHECK(found != parts_.end(), "parameter '{}' is not of the directory", target.name);
  TANDEM_CHECK(target.fits(), "parameter '{}'", target.name);
  if (target.box.elems() == 0) return;
  const int64_t total_cols = whole_box(target.shape).col_end;
  const int64_t cols = target.box.cols();
  const int64_t step = std::max<int64_t>(1, kChunkElems / cols);
  std::vector<float> chunk(static_cast<size_t>(std::min(step, target.box.rows()) * cols));
  for (const Part& part : found->second) {
    const int64_t begin = std::max(part.row_begin, target.box.row_begin);
    const int64_t end = std::min(part.row_begin + part.rows, target.box.row_end);
    if (begin >= end) continue;
    const std::span<const std::byte> pages = bytes_of(part, total_cols, begin, end);
    expect_pages(pages);
    if (copies(part, target)) {
      copy_rows(part, total_cols, begin, end, target);
      release_pages(pages);
      continue;
    }
    for (int64_t row = begin; row < end; row += step) {
      const int64_t last = std::min(end, row + step);
      const Box box{row - part.row_begin, last - part.row_begin, target.box.col_begin, target.box.col_end};
      const auto floats = std::span(chunk).first(static_cast<size_t>(box.elems()));
      read_floats(part, total_cols, box, floats);
      store(target, (row - target.box.row_begin) * cols, floats);
    }
    release_pages(pages);
  }
}

}  // namespace tandem::hub
