#include "tandem/train/model_state.h"

#include "tandem/base/error.h"
#include "tandem/runtime/initialize.h"

namespace tandem {
namespace {

std::vector<TensorTarget> targets(Session& session) {
  std::vector<TensorTarget> list;
  for (const StateTensor& tensor : state_tensors(session.step())) {
    const TensorType& type = tensor.buffer->slice.type;
    list.push_back({tensor.name, type.dtype, type.shape, session.buffer(*tensor.buffer)});
  }
  return list;
}

}  // namespace

std::vector<StateTensor> state_tensors(const CompiledStep& step) {
  std::vector<StateTensor> tensors;
  for (const Persistent& item : step.persistents) {
    if (item.slice.arena == Arena::Gradients) continue;
    if (item.slice.arena == Arena::Weights && step.find(std::string(kMasterPrefix) + item.name) != nullptr)
      continue;
    const bool master = item.name.starts_with(kMasterPrefix);
    tensors.push_back({master ? item.name.substr(kMasterPrefix.size()) : item.name, &item});
  }
  return tensors;
}

std::vector<TensorView> state_views(const Session& session) {
  std::vector<TensorView> views;
  for (const StateTensor& tensor : state_tensors(session.step())) {
    const TensorType& type = tensor.buffer->slice.type;
    views.push_back({tensor.name, type.dtype, type.shape, session.buffer(*tensor.buffer)});
  }
  return views;
}

int64_t state_staging_bytes(const CompiledStep& step) {
  std::vector<TensorView> views;
  for (const StateTensor& tensor : state_tensors(step)) {
    const TensorType& type = tensor.buffer->slice.type;
    // Only the sizes are read.
    views.push_back({tensor.name,
                     type.dtype,
                     type.shape,
                     {static_cast<const std::byte*>(nullptr), static_cast<size_t>(type.bytes())}});
  }
  return staging_bytes(views);
}

Latest restore_latest(Session& session, const std::filesystem::path& folder) {
  Latest latest = load_latest(folder, targets(session), &session.pool());
  if (latest.manifest) session.refresh_weights();
  return latest;
}

Manifest restore(Session& session, const std::filesystem::path& checkpoint) {
  Manifest manifest = read_manifest(checkpoint);
  load(manifest, targets(session), &session.pool());
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
