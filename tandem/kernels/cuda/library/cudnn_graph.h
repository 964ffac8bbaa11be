// cuDNN's graph API, typed. A graph of products, pointwise ops and reductions over strided tensors is handed
// over whole; an engine of the library that knows its pattern runs it as one or a few kernels. Tensors
// between the ops are virtual: a type and a layout without memory. The library is loaded when it is first
// needed.
#pragma once

#include <cudnn_graph.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace tandem::cuda::cudnn {

// The functions we call of libcudnn.so.9; DeviceError where it is absent.
struct Library {
  decltype(&cudnnGetVersion) get_version;
  decltype(&cudnnGetErrorString) get_error_string;
  decltype(&cudnnGetLastErrorString) get_last_error_string;
  decltype(&cudnnCreate) create;
  decltype(&cudnnSetStream) set_stream;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor;
  decltype(&cudnnBackendSetAttribute) set_attribute;
  decltype(&cudnnBackendGetAttribute) get_attribute;
  decltype(&cudnnBackendFinalize) finalize;
  decltype(&cudnnBackendExecute) execute;
};
const Library& library();

// DeviceError with the library's own words.
void check(cudnnStatus_t status, const char* what);

template <typename T>
constexpr cudnnBackendAttributeType_t attribute_type() {
  if constexpr (std::is_same_v<T, bool>) return CUDNN_TYPE_BOOLEAN;
  if constexpr (std::is_same_v<T, int64_t>) return CUDNN_TYPE_INT64;
  if constexpr (std::is_same_v<T, float>) return CUDNN_TYPE_FLOAT;
  if constexpr (std::is_same_v<T, void*>) return CUDNN_TYPE_VOID_PTR;
  if constexpr (std::is_same_v<T, cudnnHandle_t>) return CUDNN_TYPE_HANDLE;
  if constexpr (std::is_same_v<T, cudnnDataType_t>) return CUDNN_TYPE_DATA_TYPE;
  if constexpr (std::is_same_v<T, cudnnPointwiseMode_t>) return CUDNN_TYPE_POINTWISE_MODE;
  if constexpr (std::is_same_v<T, cudnnReduceTensorOp_t>) return CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
  if constexpr (std::is_same_v<T, cudnnBackendHeurMode_t>) return CUDNN_TYPE_HEUR_MODE;
  if constexpr (std::is_same_v<T, cudnnConvolutionMode_t>) return CUDNN_TYPE_CONVOLUTION_MODE;
}

// Anything the API knows: a bag of attributes that is filled, then finalized. Errors throw DeviceError.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  cudnnBackendDescriptor_t raw() const { return raw_; }

  template <typename T>
  void set(cudnnBackendAttributeName_t name, std::span<const T> values) {
    set_raw(name, attribute_type<T>(), static_cast<int64_t>(values.size()), values.data());
  }
  template <typename T>
  void set(cudnnBackendAttributeName_t name, const T& value) {
    set(name, std::span<const T>(&value, 1));
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& value);
  void set(cudnnBackendAttributeName_t name, std::span<const Descriptor> values);
  void finalize();

  int64_t get_integer(cudnnBackendAttributeName_t name) const;
  std::vector<cudnnBackendNumericalNote_t> get_notes(cudnnBackendAttributeName_t name) const;
  // The attribute's descriptors, which are of `type`.
  std::vector<Descriptor> get_descriptors(cudnnBackendAttributeName_t name,
                                          cudnnBackendDescriptorType_t type) const;

 private:
  void set_raw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
               const void* values);
  cudnnBackendDescriptor_t raw_ = nullptr;
};

struct Layout {
  std::vector<int64_t> dims, strides;  // in elements
};

// A graph under construction, then finalized. Arithmetic, and tensors between ops, are fp32 unless told.
class Graph {
 public:
  struct Tensor {
    int64_t id;  // 1, 2, ... in the order of creation
  };

  // In memory: bound at each run, in the order of creation. Addresses are multiples of 16 bytes.
  Tensor tensor(Layout layout, cudnnDataType_t type);
  Tensor scalar(float value);
  Tensor temporary(Layout layout, cudnnDataType_t type = CUDNN_DATA_FLOAT);

  void matmul(Tensor a, Tensor b, Tensor out);
  // Of images [N,C,H,W] with weights [K,C,R,S], in whatever layout; one stride and one padding for both
  // sides.
  struct Window {
    int64_t stride, pad;
  };
  void conv(Tensor x, Tensor w, Tensor y, Window window);
  void conv_grad_input(Tensor dy, Tensor w, Tensor dx, Window window);
  void conv_grad_weight(Tensor x, Tensor dy, Tensor dw, Window window);
  void reshape(Tensor x, Tensor out);                           // the same bytes under another layout
  void reduce(cudnnReduceTensorOp_t op, Tensor x, Tensor out);  // along dims of which `out` has fewer
  void pointwise(cudnnPointwiseMode_t mode, std::initializer_list<Tensor> in, Tensor out,
                 cudnnDataType_t compute = CUDNN_DATA_FLOAT);
  // Into a new temporary with the layout of the first input.
  Tensor pointwise(cudnnPointwiseMode_t mode, std::initializer_list<Tensor> in,
                   cudnnDataType_t type = CUDNN_DATA_FLOAT, cudnnDataType_t compute = CUDNN_DATA_FLOAT);
  Tensor index(Tensor like, int64_t axis);  // i32: each element's place along the axis

  void finalize(cudnnHandle_t handle);
  const Descriptor& operations() const { return graph_; }  // once finalized

 private:
  friend class Plan;
  enum class Storage { Memory, ByValue, Virtual };
  Tensor add(Layout layout, cudnnDataType_t type, Storage storage);
  void add_pointwise(const Descriptor& kind, std::initializer_list<Tensor> in, Tensor out);
  const Descriptor& at(Tensor tensor) const { return tensors_[static_cast<size_t>(tensor.id - 1)]; }
  const Layout& layout(Tensor tensor) const { return layouts_[static_cast<size_t>(tensor.id - 1)]; }

  std::vector<Descriptor> tensors_, ops_;
  std::vector<Layout> layouts_;
  std::vector<int64_t> bound_ids_, scalar_ids_;
  std::vector<float> scalars_;
  Descriptor graph_{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
};

// The engines, with their settings, that the library proposes, best first; none where it knows none.
std::vector<Descriptor> engine_configs(const Graph& graph, cudnnBackendHeurMode_t mode);
// What the library says of such an engine's arithmetic.
std::vector<cudnnBackendNumericalNote_t> notes_of(const Descriptor& config);

// A graph compiled for one engine. DeviceError if the engine refuses.
class Plan {
 public:
  Plan(const Graph& graph, Descriptor config);

  size_t workspace_bytes() const { return workspace_bytes_; }
  // Into the handle's stream; `pointers` as the graph's tensors in memory were made.
  void run(cudnnHandle_t handle, std::span<void* const> pointers, void* workspace) const;

 private:
  Descriptor config_, plan_{CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR};
  std::vector<int64_t> ids_;    // of tensors in memory, then of scalars
  std::vector<float> scalars_;  // read when the plan runs
  size_t workspace_bytes_ = 0;
};

}  // namespace tandem::cuda::cudnn
