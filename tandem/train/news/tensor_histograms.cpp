#include "tandem/train/news/tensor_histograms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "tandem/base/dtype.h"
#include "tandem/base/error.h"
#include "tandem/checkpoint/piece.h"

namespace tandem {
namespace {

// A parameter's own name: neither an optimizer's "state:parameter" nor a range of 8-bit numbers.
bool is_parameter(std::string_view tensor) {
  return tensor.find(':') == std::string_view::npos && !tensor.starts_with(kHintPrefix);
}

// Buffers, before a colon and the name of a unit.
constexpr std::string_view kWeights = "weights", kGradients = "grads", kPartsOfGradients = "grads_part";
constexpr int64_t kElemsAtOnce = 1 << 20;  // elements: what is copied stays small

// The values of elements [first, first + count) of a buffer.
std::vector<float> values_of(const Session& session, const Slice& slice, int64_t first, int64_t count) {
  const DType dtype = slice.type.dtype;
  const int64_t width = dtype_bytes(dtype);
  std::vector<std::byte> copy;
  std::span<const std::byte> bytes;
  if (session.reaches(slice)) {
    bytes =
        session.buffer(slice).subspan(static_cast<size_t>(first * width), static_cast<size_t>(count * width));
  } else {
    copy.resize(static_cast<size_t>(count * width));
    session.read_buffer(slice, first * width, copy);
    bytes = copy;
  }
  std::vector<float> values(static_cast<size_t>(count));
  if (dtype == DType::F32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  TANDEM_CHECK(is_half(dtype), "a histogram of {}", dtype_name(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, bytes.data() + 2 * i, sizeof bits);
    values[i] = dtype == DType::BF16 ? to_float(BFloat16{bits}) : to_float(Half{bits});
  }
  return values;
}

// Where the tensors of a unit lie in a buffer of this length: as in its weights or, where that is this rank's
// part of them alone, as in its optimizer's states.
const std::vector<Piece>* pieces_of(const CompiledStep& step, std::string_view unit, int64_t elems) {
  const std::string end = fmt::format(":{}", unit);
  for (const Persistent& item : step.persistents) {
    if (item.name.starts_with(kGradients)) continue;  // is one piece by itself
    if (item.name.ends_with(end) && item.slice.type.shape.elems() == elems) return &item.pieces;
  }
  return nullptr;
}

// Tied tables: their gradient lies in two buffers until the update adds them.
bool is_in_two(const CompiledStep& step, std::string_view tensor) {
  const std::string begin = fmt::format("grad:{}:", tensor);
  return std::any_of(step.persistents.begin(), step.persistents.end(),
                     [&](const Persistent& item) { return item.name.starts_with(begin); });
}

std::vector<double> packed(const std::vector<Histogram>& histograms, int rank, int num_ranks) {
  std::vector<double> numbers;
  for (const Histogram& one : histograms) {
    std::vector<double> counts(2 * kMostBucket + 1);
    for (const auto& [bucket, count] : one.counts)
      counts[static_cast<size_t>(bucket + kMostBucket)] = static_cast<double>(count);
    numbers.insert(numbers.end(), counts.begin(), counts.end());
    numbers.insert(numbers.end(), {one.sum, one.sum_squares, static_cast<double>(one.num),
                                   static_cast<double>(one.not_finite)});
    // Each rank has a place for its least and its greatest; one without values has none.
    std::vector<double> ends(static_cast<size_t>(3 * num_ranks));
    const auto own = static_cast<size_t>(3 * rank);
    if (one.num > 0) ends[own] = 1, ends[own + 1] = one.min, ends[own + 2] = one.max;
    numbers.insert(numbers.end(), ends.begin(), ends.end());
  }
  return numbers;
}

void unpack(std::span<const double> numbers, int num_ranks, std::vector<Histogram>& histograms) {
  const double* at = numbers.data();
  for (Histogram& one : histograms) {
    one.counts.clear();
    for (int bucket = -kMostBucket; bucket <= kMostBucket; ++bucket, ++at) {
      if (*at > 0) one.counts[bucket] = static_cast<int64_t>(*at);
    }
    one.sum = *at++;
    one.sum_squares = *at++;
    one.num = static_cast<int64_t>(*at++);
    one.not_finite = static_cast<int64_t>(*at++);
    bool any = false;
    for (int rank = 0; rank < num_ranks; ++rank, at += 3) {
      if (at[0] == 0) continue;
      one.min = any ? std::min(one.min, at[1]) : at[1];
      one.max = any ? std::max(one.max, at[2]) : at[2];
      any = true;
    }
  }
}

}  // namespace

TensorHistograms::TensorHistograms(Session& session, const World& world, int64_t every)
    : session_(session), world_(world), every_(every) {
  if (every == 0) return;
  for (const ModelTensor& tensor : session.step().tensors) {
    if (!is_parameter(tensor.name)) continue;
    weights_.emplace_back().name = "weights/" + tensor.name;
    gradients_.emplace_back().name = "gradients/" + tensor.name;
  }
}

void TensorHistograms::take(std::string_view kind, double scale, std::vector<Histogram>& into) {
  struct Part {
    const Slice* slice;
    const Piece* piece;
  };
  std::map<std::string_view, std::vector<Part>> parts;
  const CompiledStep& step = session_.step();
  for (const Persistent& item : step.persistents) {
    const size_t colon = item.name.find(':');
    const std::string_view what = std::string_view(item.name).substr(0, colon);
    if (what != kind && (kind != kGradients || what != kPartsOfGradients)) continue;
    const std::string_view unit = std::string_view(item.name).substr(colon + 1);
    const std::vector<Piece>* pieces = pieces_of(step, unit, item.slice.type.shape.elems());
    if (pieces == nullptr) continue;  // parts of gradients under ddp: nothing else is cut like them
    for (const Piece& piece : *pieces) {
      const std::string_view tensor =
          std::string_view(piece.tensor).substr(piece.tensor.rfind(':') + 1);  // of a state: its parameter
      if (piece.owned) parts[tensor].push_back({&item.slice, &piece});
    }
  }
  if (kind == kGradients)
    std::erase_if(parts, [&](const auto& tensor) { return is_in_two(step, tensor.first); });
  session_.wait();
  const size_t prefix = into.empty() ? 0 : into.front().name.find('/') + 1;
  const auto count_one = [&](int64_t i, int) {
    Histogram& one = into[static_cast<size_t>(i)];
    const auto found = parts.find(std::string_view(one.name).substr(prefix));
    one = Histogram(one.name);
    if (found == parts.end()) return;
    for (const auto& [slice, piece] : found->second) {
      const int64_t end = piece->offset + piece->box.elems();
      for (int64_t first = piece->offset; first < end; first += kElemsAtOnce) {
        std::vector<float> values = values_of(session_, *slice, first, std::min(kElemsAtOnce, end - first));
        for (float& value : values) value = static_cast<float>(value / scale);
        one.add(values);
      }
    }
  };
  const auto count = static_cast<int64_t>(into.size());
  if (session_.shares_memory()) {
    session_.pool().parallel_for(count, count_one);
  } else {  // one thread talks to the device
    for (int64_t i = 0; i < count; ++i) count_one(i, 0);
  }
}

std::function<void()> TensorHistograms::before_update(int64_t step, double scale) {
  if (!is_due(step)) return {};
  return [this, scale] { take(kGradients, scale, gradients_); };
}

std::vector<Histogram> TensorHistograms::take_weights() {
  take(kWeights, 1, weights_);
  std::vector<Histogram> all = weights_;
  all.insert(all.end(), gradients_.begin(), gradients_.end());
  if (world_.size() > 1) {
    std::vector<double> numbers = packed(all, world_.at().rank(), world_.size());
    world_.sum(numbers, "histograms");
    unpack(numbers, world_.size(), all);
  }
  // Running statistics are no parameters: they have neither.
  std::erase_if(all, [](const Histogram& one) { return one.num + one.not_finite == 0; });
  return all;
}

}  // namespace tandem
