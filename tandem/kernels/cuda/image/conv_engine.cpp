#include "tandem/kernels/cuda/image/conv_engine.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>

#include "tandem/base/error.h"
#include "tandem/kernels/cuda/image/patches.h"
#include "tandem/kernels/cuda/library/per_device.h"
#include "tandem/kernels/cuda/library/scratch.h"

namespace tandem::cuda {
namespace {

using cudnn::Layout;

constexpr size_t kTensorAlignment = 16;  // of the graph's tensors

// The library writes the weight's gradient in the storage type, before it is added to the f32 one.
size_t rounded_bytes(const ConvShape& s, ConvPass pass) {
  if (pass != ConvPass::GradWeight) return 0;
  return aligned(static_cast<size_t>(s.weights() * dtype_bytes(s.type)));
}

cudnnDataType_t data_type(DType type) { return type == DType::BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF; }

// Dims are named [N,C,H,W], and lie in memory with the channels last.
Layout channels_last(int64_t n, int64_t height, int64_t width, int64_t channels) {
  return {{n, channels, height, width}, {height * width * channels, 1, width * channels, channels}};
}

struct Compiled {
  cudnn::Graph graph;
  cudnn::Plan plan;
};

std::optional<Compiled> compile(const ConvShape& s, ConvPass pass, cudnnHandle_t handle) {
  cudnn::Graph graph = conv_graph(s, pass);
  graph.finalize(handle);
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (cudnn::Descriptor& config : cudnn::engine_configs(graph, mode)) {
      if (!is_exact_engine(cudnn::notes_of(config))) continue;
      try {
        cudnn::Plan plan(graph, std::move(config));
        if (plan.workspace_bytes() <= kConvEngineBytes) return Compiled{std::move(graph), std::move(plan)};
      } catch (const DeviceError&) {
        // It was proposed, but refuses this very shape: the next one may not.
      }
    }
  }
  return std::nullopt;
}

bool is_there() {
  static const bool found = [] {
    try {
      cudnn::library();
    } catch (const DeviceError&) {
      return false;
    }
    return true;
  }();
  return found;
}

// A device's handle and the plans made with it. The lock also keeps a handle's stream for one launch.
struct DevicePlans {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  std::map<std::pair<ConvPass, ConvShape>, std::optional<Compiled>> compiled;

  DevicePlans() { cudnn::check(cudnn::library().create(&handle), "cudnnCreate"); }

  bool run(ConvPass pass, const ConvShape& shape, std::span<void* const> pointers, void* scratch,
           cudaStream_t queue) {
    const std::lock_guard lock(mutex);
    const auto key = std::pair(pass, shape);
    auto found = compiled.find(key);
    if (found == compiled.end()) found = compiled.emplace(key, compile(shape, pass, handle)).first;
    if (!found->second) return false;
    cudnn::check(cudnn::library().set_stream(handle, queue), "cudnnSetStream");
    found->second->plan.run(handle, pointers, scratch);
    return true;
  }
};

bool run(const ConvShape& s, ConvPass pass, std::array<const void*, 3> tensors, void* scratch,
         cudaStream_t queue) {
  std::array<void*, 3> pointers;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (reinterpret_cast<size_t>(tensors[i]) % kTensorAlignment != 0) return false;
    pointers[i] = const_cast<void*>(tensors[i]);
  }
  return is_there() && per_device<DevicePlans>().run(pass, s, pointers, scratch, queue);
}

}  // namespace

size_t conv_engine_workspace(const ConvShape& shape, ConvPass pass) {
  return kScratchAlignment + rounded_bytes(shape, pass) + kConvEngineBytes;
}

bool run_conv_engine(const ConvShape& s, const ConvForward& tensors, std::span<std::byte> workspace,
                     cudaStream_t queue) {
  std::byte* scratch = aligned_begin(workspace, conv_engine_workspace(s, ConvPass::Forward));
  return run(s, ConvPass::Forward, {tensors.x, tensors.w, tensors.y}, scratch, queue);
}

bool run_conv_engine(const ConvShape& s, const ConvGradInput& tensors, std::span<std::byte> workspace,
                     cudaStream_t queue) {
  std::byte* scratch = aligned_begin(workspace, conv_engine_workspace(s, ConvPass::GradInput));
  return run(s, ConvPass::GradInput, {tensors.dy, tensors.w, tensors.dx}, scratch, queue);
}

bool run_conv_engine(const ConvShape& s, const ConvGradWeight& tensors, std::span<std::byte> workspace,
                     cudaStream_t queue) {
  std::byte* rounded = aligned_begin(workspace, conv_engine_workspace(s, ConvPass::GradWeight));
  std::byte* scratch = rounded + rounded_bytes(s, ConvPass::GradWeight);
  if (!run(s, ConvPass::GradWeight, {tensors.x, tensors.dy, rounded}, scratch, queue)) return false;
  add_rounded(s.type, rounded, tensors.acc, s.weights(), tensors.fresh, queue);
  return true;
}

cudnn::Graph conv_graph(const ConvShape& s, ConvPass pass) {
  const cudnnDataType_t type = data_type(s.type);
  const Layout x = channels_last(s.batch, s.height, s.width, s.in);
  const Layout w = channels_last(s.out, s.kernel, s.kernel, s.in);
  const Layout y = channels_last(s.batch, s.out_height, s.out_width, s.out);
  const cudnn::Graph::Window window{s.stride, s.pad};
  cudnn::Graph graph;
  const auto tensors = [&](const Layout& a, const Layout& b, const Layout& c) {
    return std::array{graph.tensor(a, type), graph.tensor(b, type), graph.tensor(c, type)};
  };
  switch (pass) {
    case ConvPass::Forward: {
      const auto [in, weight, out] = tensors(x, w, y);
      graph.conv(in, weight, out, window);
      break;
    }
    case ConvPass::GradInput: {
      const auto [dy, weight, dx] = tensors(y, w, x);
      graph.conv_grad_input(dy, weight, dx, window);
      break;
    }
    case ConvPass::GradWeight: {
      const auto [in, dy, dw] = tensors(x, y, w);
      graph.conv_grad_weight(in, dy, dw, window);
      break;
    }
  }
  return graph;
}

// Transforms and narrow sums lose digits.
bool is_exact_engine(std::span<const cudnnBackendNumericalNote_t> notes) {
  return std::none_of(notes.begin(), notes.end(), [](cudnnBackendNumericalNote_t note) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      case CUDNN_NUMERICAL_NOTE_FFT:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13: return true;
      default: return false;
    }
  });
}

}  // namespace tandem::cuda
