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
  for (const Persistent* buffer : saved_buffers(session.step())) {
    for (const Piece& piece : buffer->pieces)
      list.push_back(piece_view<TensorTarget>(*buffer, piece, session.buffer(*buffer)));
  }
  return list;
}

// Every tensor that a checkpoint of this model holds, whichever ranks hold it.
std::vector<LogicalTensor> all_tensors(const CompiledStep& step) {
  bool moment1 = false, moment2 = false;
  for (const Persistent& item : step.persistents) {
    moment1 = moment1 || item.name.starts_with("moment1:");
    moment2 = moment2 || item.name.starts_with("moment2:");
  }
  std::vector<LogicalTensor> list;
  for (const ModelTensor& tensor : step.tensors) {
    list.push_back({tensor.name, DType::F32, tensor.shape});
    if (!tensor.trained) continue;
    if (moment1) list.push_back({"moment1:" + tensor.name, DType::F32, tensor.shape});
    if (moment2) list.push_back({"moment2:" + tensor.name, DType::F32, tensor.shape});
  }
  return list;
}

}  // namespace

std::vector<const Persistent*> saved_buffers(const CompiledStep& step) {
  constexpr std::string_view kWeights = "weights:";
  std::vector<const Persistent*> buffers;
  for (const Persistent& item : step.persistents) {
    if (item.slice.arena == Arena::Gradients) continue;
    std::string_view weights = item.name;  // of a parameter, or of a unit
    if (weights.starts_with(kWeights)) weights.remove_prefix(kWeights.size());
    if (step.find(std::string(kMasterPrefix) + std::string(weights)) != nullptr) continue;
    buffers.push_back(&item);
  }
  return buffers;
}

std::vector<TensorView> state_views(const Session& session) {
  std::vector<TensorView> views;
  for (const Persistent* buffer : saved_buffers(session.step())) {
    for (const Piece& piece : buffer->pieces) {
      if (!piece.owned) continue;
      views.push_back(
          piece_view<TensorView>(*buffer, piece, std::span<const std::byte>(session.buffer(*buffer))));
    }
  }
  return views;
}

int64_t state_staging_bytes(const CompiledStep& step) {
  std::vector<TensorView> views;
  for (const Persistent* buffer : saved_buffers(step)) {
    // Only the sizes are read.
    const std::span<const std::byte> sized(static_cast<const std::byte*>(nullptr),
                                           static_cast<size_t>(buffer->slice.type.bytes()));
    for (const Piece& piece : buffer->pieces) {
      if (piece.owned) views.push_back(piece_view<TensorView>(*buffer, piece, sized));
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
