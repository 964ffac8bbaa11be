#include "tandem/train/model_state.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/compile/passes/fp8.h"
#include "tandem/metrics/long_work.h"
#include "tandem/optimizers/packed_state.h"
#include "tandem/runtime/initialize.h"

namespace tandem {
namespace {

static_assert(kFp8Activations.starts_with(kHintPrefix) && kFp8Gradients.starts_with(kHintPrefix));

// A master's low halves: with its weights, which are the high ones, they are fp32 numbers.
bool in_halves(const Persistent& buffer) { return buffer.slice.type.dtype == DType::I16; }

// What checkpoints have of a buffer.
DType saved_dtype(const Persistent& buffer) {
  return in_halves(buffer) || buffer.packed ? DType::F32 : buffer.slice.type.dtype;
}

size_t piece_bytes(const Persistent& buffer, const Piece& piece) {
  return static_cast<size_t>(piece.box.elems() * dtype_bytes(saved_dtype(buffer)));
}

// Of the piece in the buffer itself, or in the weights that belong to it.
int64_t piece_begin(const Slice& slice, const Piece& piece) {
  return piece.offset * dtype_bytes(slice.type.dtype);
}

std::span<std::byte> piece_of(const Slice& slice, const Piece& piece, std::span<std::byte> bytes) {
  return bytes.subspan(static_cast<size_t>(piece_begin(slice, piece)),
                       static_cast<size_t>(piece.box.elems() * dtype_bytes(slice.type.dtype)));
}

// Whether the bytes that are saved are there as they are.
bool reaches(const Session& session, const Persistent& buffer) {
  if (buffer.packed) return false;
  return session.reaches(buffer.slice) && (!in_halves(buffer) || session.reaches(*buffer.weights));
}

void widen(DType dtype, std::span<const std::byte> from, std::span<std::byte> to) {
  auto* dst = reinterpret_cast<float*>(to.data());
  const auto* src = reinterpret_cast<const uint16_t*>(from.data());
  for (size_t i = 0; i < from.size() / sizeof *src; ++i)
    dst[i] = dtype == DType::BF16 ? to_float(BFloat16{src[i]}) : to_float(Half{src[i]});
}

std::vector<std::byte> bytes_of(const Session& session, const Slice& slice, int64_t begin, int64_t elems) {
  const int64_t width = dtype_bytes(slice.type.dtype);
  std::vector<std::byte> bytes(static_cast<size_t>(elems * width));
  if (session.reaches(slice)) {
    std::memcpy(bytes.data(), session.buffer(slice).data() + begin * width, bytes.size());
  } else if (!bytes.empty()) {
    session.read_buffer(slice, begin * width, bytes);
  }
  return bytes;
}

// Of the numbers from `first`, a block's, up to `end`.
std::vector<float> scales_of(const Session& session, const Slice& scales, int64_t first, int64_t end) {
  const std::vector<std::byte> bytes =
      bytes_of(session, scales, first / kStateBlock, num_state_blocks(end - first));
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// What shares in 8 bits are shares of; empty for other states.
std::vector<float> roots_of(const Session& session, const Persistent& buffer, int64_t first, int64_t end) {
  if (buffer.slice.type.dtype != DType::U8 || buffer.packed->kept != Kept::Share) return {};
  std::vector<float> roots(static_cast<size_t>(end - first));
  unpack_roots(bytes_of(session, buffer.packed->roots, first, end - first).data(),
               scales_of(session, buffer.packed->root_scales, first, end).data(), roots);
  return roots;
}

// The numbers of a piece of an optimizer's state, or of frozen weights, that is kept in fewer bits.
void unpack_piece(const Session& session, const Persistent& buffer, const Piece& piece,
                  std::span<std::byte> to) {
  const int64_t first = piece.offset / kStateBlock * kStateBlock, end = piece.offset + piece.box.elems();
  if (buffer.packed->rounded) {
    const std::vector<std::byte> stored = bytes_of(session, buffer.slice, piece.offset, piece.box.elems());
    return widen(buffer.slice.type.dtype, stored, to);
  }
  const bool scaled = buffer.slice.type.dtype == DType::U8;
  const std::vector<std::byte> codes = bytes_of(session, buffer.slice, first, end - first);
  const std::vector<float> scales =
      scaled ? scales_of(session, buffer.packed->scales, first, end) : std::vector<float>();
  std::vector<float> values(static_cast<size_t>(end - first));
  unpack_states(buffer.slice.type.dtype, buffer.packed->kept, codes.data(), scales.data(),
                roots_of(session, buffer, first, end), values);
  std::memcpy(to.data(), values.data() + (piece.offset - first), to.size());
}

// Where a checkpoint's tensors are read to: the session's live buffers, or memory from which `store` sends
// them to the device. A start without a checkpoint touches none of that memory.
class LoadTargets {
 public:
  using Wanted = bool (*)(std::string_view tensor);
  explicit LoadTargets(
      Session& session, Wanted wanted = [](std::string_view) { return true; })
      : session_(session) {
    session.wait();
    for (const Persistent& buffer : session.step().persistents) {
      if (!buffer.saved || buffer.pieces.empty() || !wanted(buffer.pieces.front().tensor)) continue;
      if (buffer.packed) {
        add_packed(buffer);
        continue;
      }
      const std::span<std::byte> own = memory_of(buffer.slice);
      const std::span<std::byte> high = in_halves(buffer) ? memory_of(*buffer.weights) : own;
      for (const Piece& piece : buffer.pieces) {
        TensorTarget target{piece.tensor, saved_dtype(buffer), piece.shape, piece.box, {}};
        if (in_halves(buffer)) {
          target.bytes = take(*buffer.weights, piece, high);
          target.low = take(buffer.slice, piece, own);
        } else {
          target.bytes = take(buffer.slice, piece, own);
        }
        list_.push_back(std::move(target));
      }
    }
  }
  const std::vector<TensorTarget>& list() const { return list_; }

  void store() {
    for (const auto& [slice, begin, bytes] : apart_) session_.write_buffer(*slice, begin, bytes);
    for (const bool shares : {false, true}) {  // which need what they are shares of
      for (const auto& [buffer, values] : packed_) {
        if ((buffer->packed->kept == Kept::Share) == shares) pack(*buffer, values);
      }
    }
  }

 private:
  struct Apart {
    const Slice* slice;
    int64_t begin;
    std::span<const std::byte> bytes;
  };
  // States are read as numbers, and packed once all of a buffer are there.
  void add_packed(const Persistent& buffer) {
    packed_.push_back({&buffer, std::vector<float>(static_cast<size_t>(buffer.slice.type.shape.elems()))});
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(packed_.back().second));
    for (const Piece& piece : buffer.pieces) {
      TensorTarget target{piece.tensor, DType::F32, piece.shape, piece.box, {}};
      target.bytes =
          bytes.subspan(static_cast<size_t>(piece.offset) * sizeof(float), piece_bytes(buffer, piece));
      list_.push_back(std::move(target));
    }
  }
  void pack(const Persistent& buffer, const std::vector<float>& values) {
    std::vector<std::byte> codes(static_cast<size_t>(buffer.slice.type.bytes()));
    std::vector<float> scales(static_cast<size_t>(num_state_blocks(static_cast<int64_t>(values.size()))));
    if (buffer.packed->rounded) {
      round_to(codes, buffer.slice.type.dtype, std::as_bytes(std::span(values)), session_.pool());
    } else {
      const std::vector<float> roots = roots_of(session_, buffer, 0, static_cast<int64_t>(values.size()));
      pack_states(buffer.slice.type.dtype, buffer.packed->kept, values, roots, 0, 0, codes.data(),
                  scales.data());
    }
    const auto write = [&](const Slice& slice, std::span<const std::byte> bytes) {
      if (session_.reaches(slice)) {
        std::memcpy(session_.buffer(slice).data(), bytes.data(), bytes.size());
      } else {
        session_.write_buffer(slice, 0, bytes);
      }
    };
    write(buffer.slice, codes);
    if (buffer.slice.type.dtype == DType::U8) write(buffer.packed->scales, std::as_bytes(std::span(scales)));
  }

  std::span<std::byte> memory_of(const Slice& slice) {
    if (session_.reaches(slice)) return session_.buffer(slice);
    const auto size = static_cast<size_t>(slice.type.bytes());
    memory_.push_back(std::make_unique_for_overwrite<std::byte[]>(size));
    return {memory_.back().get(), size};
  }
  std::span<std::byte> take(const Slice& slice, const Piece& piece, std::span<std::byte> memory) {
    const std::span<std::byte> bytes = piece_of(slice, piece, memory);
    if (!session_.reaches(slice)) apart_.push_back({&slice, piece_begin(slice, piece), bytes});
    return bytes;
  }

  Session& session_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::vector<TensorTarget> list_;
  std::vector<Apart> apart_;  // pieces that the CPU does not reach
  std::vector<std::pair<const Persistent*, std::vector<float>>> packed_;
};

std::vector<LogicalTensor> all_tensors(const CompiledStep& step) {
  std::vector<LogicalTensor> list;
  for (const ModelTensor& tensor : step.tensors) list.push_back({tensor.name, DType::F32, tensor.shape});
  return list;
}

// Calls `visit` with every piece that this rank writes, in the order of its file.
template <typename Visit>
void visit_written(const CompiledStep& step, Visit&& visit) {
  for (const Persistent& buffer : step.persistents) {
    for (const Piece& piece : buffer.pieces) {
      if (buffer.saved && piece.owned) visit(buffer, piece);
    }
  }
}

}  // namespace

StateViews state_views(const Session& session, std::span<std::byte> memory) {
  StateViews state;
  const bool ordered = !memory.empty();  // as in the file, also behind pieces that need no copy
  if (!ordered) {
    size_t apart = 0;
    visit_written(session.step(), [&](const Persistent& buffer, const Piece& piece) {
      if (!reaches(session, buffer)) apart += piece_bytes(buffer, piece);
    });
    state.own = std::make_unique_for_overwrite<std::byte[]>(apart);
    memory = {state.own.get(), apart};
  }
  session.wait();
  size_t used = 0;
  visit_written(session.step(), [&](const Persistent& buffer, const Piece& piece) {
    const size_t size = piece_bytes(buffer, piece);
    const bool live = reaches(session, buffer);
    const std::span<std::byte> copy = memory.subspan(used, live ? 0 : size);
    const auto bytes_of = [&](const Slice& slice, std::span<std::byte> to) {
      if (live) return piece_of(slice, piece, session.buffer(slice));
      session.read_buffer(slice, piece_begin(slice, piece), to);
      return to;
    };
    TensorView view{piece.tensor, saved_dtype(buffer), piece.shape, piece.box, {}};
    if (buffer.packed) {
      unpack_piece(session, buffer, piece, copy);
      view.bytes = copy;
    } else if (in_halves(buffer)) {  // a copy of both takes the room that they take when they are joined
      view.bytes = bytes_of(*buffer.weights, copy.first(copy.size() / 2));
      view.low = bytes_of(buffer.slice, copy.subspan(copy.size() / 2));
    } else {
      view.bytes = bytes_of(buffer.slice, copy);
    }
    state.views.push_back(std::move(view));
    if (ordered || !live) used += size;
  });
  return state;
}

namespace {

// Of fp32 numbers, or of their high halves: the exponent of what is not finite is all ones.
bool all_below(std::span<const std::byte> bytes, bool halves, float limit) {
  if (halves) {
    const std::span values(reinterpret_cast<const uint16_t*>(bytes.data()), bytes.size() / 2);
    return std::all_of(values.begin(), values.end(), [](uint16_t v) { return (v & 0x7f80) != 0x7f80; });
  }
  const std::span values(reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float));
  return std::all_of(values.begin(), values.end(), [&](float v) { return std::fabs(v) < limit; });
}

}  // namespace

bool is_finite(Session& session, std::span<const TensorView> views) {
  constexpr float kRoundsToInfinityInFp16 = 65520;
  std::vector<float> limits;
  visit_written(session.step(), [&](const Persistent& buffer, const Piece&) {
    const bool fp16 = buffer.weights && buffer.weights->type.dtype == DType::F16;
    limits.push_back(fp16 ? kRoundsToInfinityInFp16 : std::numeric_limits<float>::infinity());
  });
  TANDEM_CHECK(limits.size() == views.size());
  std::atomic<bool> finite = true;
  session.pool().parallel_for(static_cast<int64_t>(views.size()), [&](int64_t i, int) {
    const TensorView& view = views[static_cast<size_t>(i)];
    if (view.dtype != DType::F32 || !finite) return;
    if (!all_below(view.bytes, view.in_halves(), limits[static_cast<size_t>(i)])) finite = false;
  });
  return finite;
}

std::vector<TensorView> state_outline(const CompiledStep& step) {
  std::vector<TensorView> views;
  visit_written(step, [&](const Persistent& buffer, const Piece& piece) {
    const std::span<const std::byte> nowhere(static_cast<const std::byte*>(nullptr),
                                             piece_bytes(buffer, piece));
    views.push_back({piece.tensor, saved_dtype(buffer), piece.shape, piece.box, nowhere});
  });
  return views;
}

int64_t state_staging_bytes(const CompiledStep& step) {
  int64_t bytes = 0;
  visit_written(step, [&](const Persistent& buffer, const Piece& piece) {
    bytes += static_cast<int64_t>(piece_bytes(buffer, piece));
  });
  return bytes;
}

Latest restore_latest(Session& session, const StoreRef& store, const World& world) {
  LoadGroup group;
  group.rank = world.at().rank();
  group.all = [&](bool mine) { return world.all(mine, "checkpoint"); };
  group.from_rank_0 = [&](const std::string& text) { return world.from_lead(text, "checkpoint"); };
  LoadTargets targets(session);
  Latest latest = load_latest(store, targets.list(), &session.pool(), Match::Exact,
                              all_tensors(session.step()), world.size() > 1 ? &group : nullptr);
  if (!latest.manifest) return latest;
  targets.store();
  session.refresh_weights();
  return latest;
}

Manifest restore(Session& session, const std::filesystem::path& checkpoint) {
  Manifest manifest = read_manifest(checkpoint);
  restore(session, manifest);
  return manifest;
}

void restore(Session& session, const Manifest& manifest) {
  LoadTargets targets(session);
  load(manifest, targets.list(), &session.pool(), Match::Exact, all_tensors(session.step()));
  targets.store();
  session.refresh_weights();
}

void load_weights(Session& session, const Manifest& manifest) {
  LoadTargets targets(session);
  const std::vector<TensorTarget>& list = targets.list();
  std::vector<std::vector<std::byte>> wide;  // fp32 copies of what is stored narrower
  wide.reserve(list.size());
  std::vector<TensorTarget> direct = list;
  for (TensorTarget& target : direct) {
    if (!is_half(target.dtype)) continue;
    wide.emplace_back(target.bytes.size() * 2);
    target.dtype = DType::F32;
    target.bytes = wide.back();
  }
  load(manifest, direct, &session.pool(), Match::Subset);
  for (size_t i = 0; i < list.size(); ++i) {
    if (is_half(list[i].dtype)) round_to(list[i].bytes, list[i].dtype, direct[i].bytes, session.pool());
  }
  targets.store();
}

namespace {

// Neither an optimizer's "state:parameter" nor a hint.
bool is_weight(std::string_view tensor) {
  return tensor.find(':') == std::string_view::npos && !tensor.starts_with(kHintPrefix);
}

}  // namespace

void load_weights(Session& session, const hub::HubWeights& weights, bool quiet) {
  LoadTargets targets(session, is_weight);
  int64_t bytes = 0;
  for (const TensorTarget& target : targets.list()) {
    const hub::ParamSources* param = weights.find(target.name);
    const std::string origin = weights.tensors().path().string();
    if (param == nullptr) throw DataError("{}: has nothing for the parameter '{}'", origin, target.name);
    if (param->shape != target.shape)
      throw DataError("{}: gives the parameter '{}' as {}, but the model has {}", origin, target.name,
                      to_string(param->shape), to_string(target.shape));
    bytes += target.num_bytes();
  }
  LongWork work(fmt::format("reading {}", weights.tensors().path().string()), bytes, quiet);
  weights.read_all(targets.list(), session.pool(), [&](int64_t more) { work.done(more); });
  targets.store();
  session.refresh_weights();
}

}  // namespace tandem
