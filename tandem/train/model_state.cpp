#include "tandem/train/model_state.h"

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

std::vector<TensorTarget> targets(Session& session) {
  std::vector<TensorTarget> list;
  for (const Persistent& buffer : session.step().persistents) {
    if (!buffer.saved) continue;
    for (const Piece& piece : buffer.pieces)
      list.push_back(piece_view<TensorTarget>(buffer, piece, session.buffer(buffer)));
  }
  return list;
}

std::vector<LogicalTensor> all_tensors(const CompiledStep& step) {
  std::vector<LogicalTensor> list;
  for (const ModelTensor& tensor : step.tensors) list.push_back({tensor.name, DType::F32, tensor.shape});
  return list;
}

}  // namespace

std::vector<TensorView> state_views(const Session& session) {
  std::vector<TensorView> views;
  for (const Persistent& buffer : session.step().persistents) {
    const std::span<const std::byte> bytes = session.buffer(buffer);
    for (const Piece& piece : buffer.pieces) {
      if (buffer.saved && piece.owned) views.push_back(piece_view<TensorView>(buffer, piece, bytes));
    }
  }
  return views;
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
  Latest latest = load_latest(folder, targets(session), &session.pool(), Match::Exact,
                              all_tensors(session.step()), world.size() > 1 ? &group : nullptr);
  if (latest.manifest) session.refresh_weights();
  return latest;
}

Manifest restore(Session& session, const std::filesystem::path& checkpoint) {
  Manifest manifest = read_manifest(checkpoint);
  load(manifest, targets(session), &session.pool(), Match::Exact, all_tensors(session.step()));
  session.refresh_weights();
  return manifest;
}

void load_weights(Session& session, const Manifest& manifest) {
  std::vector<TensorTarget> list = targets(session);
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
}

}  // namespace tandem
