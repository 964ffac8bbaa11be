#include "tandem/train/model_state.h"

#include <deque>

#include "tandem/base/error.h"
#include "tandem/runtime/initialize.h"

namespace tandem {
namespace {

template <typename View, typename Span>
View piece_view(const Persistent& buffer, const Piece& piece, Span bytes) {
  const DType dtype = buffer.slice.type.dtype;
  const auto elem = static_cast<size_t>(dtype_bytes(dtype));
  const auto begin = static_cast<size_t>(piece.offset) * elem;
  const auto size = static_cast<size_t>(piece.box.elems()) * elem;
  return {piece.tensor, dtype, piece.shape, piece.box, bytes.subspan(begin, size)};
}

// Where a checkpoint's tensors are read to: the session's live buffers, or copies of them that `store` sends
// to the device.
class LoadTargets {
 public:
  explicit LoadTargets(Session& session) : session_(session) {
    for (const Persistent& buffer : session.step().persistents) {
      if (!buffer.saved) continue;
      const std::span<std::byte> bytes = session.shares_memory() ? session.buffer(buffer) : copy_of(buffer);
      for (const Piece& piece : buffer.pieces)
        list_.push_back(piece_view<TensorTarget>(buffer, piece, bytes));
    }
  }
  const std::vector<TensorTarget>& list() const { return list_; }

  void store() {
    for (const auto& [buffer, bytes] : copies_) session_.write_buffer(*buffer, 0, bytes);
  }

 private:
  // What no piece covers is padding, and stays as it is.
  std::span<std::byte> copy_of(const Persistent& buffer) {
    auto& [of, bytes] = copies_.emplace_back(&buffer, std::vector<std::byte>());
    bytes.resize(static_cast<size_t>(buffer.slice.type.bytes()));
    if (buffer.pieces.size() > 1) session_.read_buffer(*of, 0, bytes);
    return bytes;
  }

  Session& session_;
  std::deque<std::pair<const Persistent*, std::vector<std::byte>>> copies_;
  std::vector<TensorTarget> list_;
};

std::vector<LogicalTensor> all_tensors(const CompiledStep& step) {
  std::vector<LogicalTensor> list;
  for (const ModelTensor& tensor : step.tensors) list.push_back({tensor.name, DType::F32, tensor.shape});
  return list;
}

}  // namespace

StateViews state_views(const Session& session, std::span<std::byte> memory) {
  StateViews state;
  if (!session.shares_memory() && memory.empty()) {
    state.own.resize(static_cast<size_t>(state_staging_bytes(session.step())));
    memory = state.own;
  }
  size_t used = 0;
  for (const Persistent& buffer : session.step().persistents) {
    if (!buffer.saved) continue;
    const auto elem = dtype_bytes(buffer.slice.type.dtype);
    for (const Piece& piece : buffer.pieces) {
      if (!piece.owned) continue;
      if (session.shares_memory()) {
        const std::span<const std::byte> bytes = session.buffer(buffer);
        state.views.push_back(piece_view<TensorView>(buffer, piece, bytes));
        continue;
      }
      const auto size = static_cast<size_t>(piece.box.elems() * elem);
      const std::span<std::byte> copy = memory.subspan(used, size);
      session.read_buffer(buffer, piece.offset * elem, copy);
      state.views.push_back({piece.tensor, buffer.slice.type.dtype, piece.shape, piece.box, copy});
      used += size;
    }
  }
  return state;
}

int64_t state_staging_bytes(const CompiledStep& step) {
  std::vector<TensorView> views;
  for (const Persistent& buffer : step.persistents) {
    // Only the sizes are read.
    const std::span<const std::byte> sized(static_cast<const std::byte*>(nullptr),
                                           static_cast<size_t>(buffer.slice.type.bytes()));
    for (const Piece& piece : buffer.pieces) {
      if (buffer.saved && piece.owned) views.push_back(piece_view<TensorView>(buffer, piece, sized));
    }
  }
  return staging_bytes(views);
}

Latest restore_latest(Session& session, const std::filesystem::path& folder, const World& world) {
  LoadGroup group;
  group.rank = world.at().rank();
  group.all = [&](bool mine) { return world.all(mine, "checkpoint"); };
  group.from_rank_0 = [&](const std::string& text) { return world.from_lead(text, "checkpoint"); };
  LoadTargets targets(session);
  Latest latest = load_latest(folder, targets.list(), &session.pool(), Match::Exact,
                              all_tensors(session.step()), world.size() > 1 ? &group : nullptr);
  if (!latest.manifest) return latest;
  targets.store();
  session.refresh_weights();
  return latest;
}

Manifest restore(Session& session, const std::filesystem::path& checkpoint) {
  Manifest manifest = read_manifest(checkpoint);
  LoadTargets targets(session);
  load(manifest, targets.list(), &session.pool(), Match::Exact, all_tensors(session.step()));
  targets.store();
  session.refresh_weights();
  return manifest;
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

}  // namespace tandem
