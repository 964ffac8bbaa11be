#include "tandem/kernels/cuda/library/cudnn_graph.h"

#include <array>

#include "tandem/base/error.h"
#include "tandem/kernels/cuda/device/shared_library.h"

namespace tandem::cuda::cudnn {
namespace {

constexpr int64_t kAlignment = 16;  // of tensors in memory, in bytes

Library load() {
  const SharedLibrary found("libcudnn.so.9");
  return {
      .get_version = found.load<decltype(&cudnnGetVersion)>("cudnnGetVersion"),
      .get_error_string = found.load<decltype(&cudnnGetErrorString)>("cudnnGetErrorString"),
      .get_last_error_string = found.load<decltype(&cudnnGetLastErrorString)>("cudnnGetLastErrorString"),
      .create = found.load<decltype(&cudnnCreate)>("cudnnCreate"),
      .set_stream = found.load<decltype(&cudnnSetStream)>("cudnnSetStream"),
      .create_descriptor =
          found.load<decltype(&cudnnBackendCreateDescriptor)>("cudnnBackendCreateDescriptor"),
      .destroy_descriptor =
          found.load<decltype(&cudnnBackendDestroyDescriptor)>("cudnnBackendDestroyDescriptor"),
      .set_attribute = found.load<decltype(&cudnnBackendSetAttribute)>("cudnnBackendSetAttribute"),
      .get_attribute = found.load<decltype(&cudnnBackendGetAttribute)>("cudnnBackendGetAttribute"),
      .finalize = found.load<decltype(&cudnnBackendFinalize)>("cudnnBackendFinalize"),
      .execute = found.load<decltype(&cudnnBackendExecute)>("cudnnBackendExecute"),
  };
}

}  // namespace

const Library& library() {
  static const Library functions = load();
  return functions;
}

void check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 1024> detail{};
  library().get_last_error_string(detail.data(), detail.size());
  throw DeviceError("cudnn: {}: {} ({})", what, library().get_error_string(status), detail.data());
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  check(library().create_descriptor(type, &raw_), "cudnnBackendCreateDescriptor");
}
Descriptor::~Descriptor() {
  if (raw_ != nullptr) library().destroy_descriptor(raw_);
}

void Descriptor::set_raw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                         const void* values) {
  check(library().set_attribute(raw_, name, type, count, values), "cudnnBackendSetAttribute");
}
void Descriptor::set(cudnnBackendAttributeName_t name, const Descriptor& value) {
  set(name, std::span(&value, 1));
}
void Descriptor::set(cudnnBackendAttributeName_t name, std::span<const Descriptor> values) {
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const Descriptor& value : values) raw.push_back(value.raw());
  set_raw(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(raw.size()), raw.data());
}
void Descriptor::finalize() { check(library().finalize(raw_), "cudnnBackendFinalize"); }

int64_t Descriptor::get_integer(cudnnBackendAttributeName_t name) const {
  int64_t value = 0, count = 0;
  check(library().get_attribute(raw_, name, CUDNN_TYPE_INT64, 1, &count, &value), "cudnnBackendGetAttribute");
  return value;
}

std::vector<cudnnBackendNumericalNote_t> Descriptor::get_notes(cudnnBackendAttributeName_t name) const {
  std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  int64_t count = 0;
  check(library().get_attribute(raw_, name, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                                &count, notes.data()),
        "cudnnBackendGetAttribute");
  notes.resize(static_cast<size_t>(count));
  return notes;
}

std::vector<Descriptor> Descriptor::get_descriptors(cudnnBackendAttributeName_t name,
                                                    cudnnBackendDescriptorType_t type) const {
  const auto get = [&](int64_t asked, void* values) {
    int64_t count = 0;
    check(library().get_attribute(raw_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, asked, &count, values),
          "cudnnBackendGetAttribute");
    return count;
  };
  const int64_t available = get(0, nullptr);
  std::vector<Descriptor> found;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < available; ++i) raw.push_back(found.emplace_back(type).raw());
  if (available > 0) found.erase(found.begin() + get(available, raw.data()), found.end());
  return found;
}

namespace {

Descriptor convolution(Graph::Window window) {
  constexpr int64_t kSides = 2;
  const std::array<int64_t, kSides> strides = {window.stride, window.stride}, pads = {window.pad, window.pad},
                                    dilations = {1, 1};
  Descriptor kind(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  kind.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  kind.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
  kind.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, kSides);
  kind.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, std::span<const int64_t>(strides));
  kind.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, std::span<const int64_t>(pads));
  kind.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, std::span<const int64_t>(pads));
  kind.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, std::span<const int64_t>(dilations));
  kind.finalize();
  return kind;
}

}  // namespace

Graph::Tensor Graph::add(Layout layout, cudnnDataType_t type, Storage storage) {
  const auto id = static_cast<int64_t>(tensors_.size()) + 1;
  Descriptor& tensor = tensors_.emplace_back(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::span<const int64_t>(layout.dims));
  tensor.set(CUDNN_ATTR_TENSOR_STRIDES, std::span<const int64_t>(layout.strides));
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment);
  if (storage == Storage::Virtual) tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  if (storage == Storage::ByValue) tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  tensor.finalize();
  layouts_.push_back(std::move(layout));
  return {id};
}

Graph::Tensor Graph::tensor(Layout layout, cudnnDataType_t type) {
  const Tensor made = add(std::move(layout), type, Storage::Memory);
  bound_ids_.push_back(made.id);
  return made;
}
Graph::Tensor Graph::scalar(float value) {
  const Tensor made = add({{1, 1, 1, 1}, {1, 1, 1, 1}}, CUDNN_DATA_FLOAT, Storage::ByValue);
  scalar_ids_.push_back(made.id);
  scalars_.push_back(value);
  return made;
}
Graph::Tensor Graph::temporary(Layout layout, cudnnDataType_t type) {
  return add(std::move(layout), type, Storage::Virtual);
}

void Graph::matmul(Tensor a, Tensor b, Tensor out) {
  Descriptor kind(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  kind.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  kind.finalize();
  Descriptor& op = ops_.emplace_back(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
  op.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, at(a));
  op.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, at(b));
  op.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, at(out));
  op.finalize();
}

void Graph::conv(Tensor x, Tensor w, Tensor y, Window window) {
  Descriptor& op = ops_.emplace_back(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution(window));
  op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, at(x));
  op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, at(w));
  op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, at(y));
  op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0f);
  op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0f);
  op.finalize();
}

void Graph::conv_grad_input(Tensor dy, Tensor w, Tensor dx, Window window) {
  Descriptor& op = ops_.emplace_back(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, convolution(window));
  op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, at(dy));
  op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, at(w));
  op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, at(dx));
  op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1.0f);
  op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 0.0f);
  op.finalize();
}

void Graph::conv_grad_weight(Tensor x, Tensor dy, Tensor dw, Window window) {
  Descriptor& op = ops_.emplace_back(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, convolution(window));
  op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, at(x));
  op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, at(dy));
  op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, at(dw));
  op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 1.0f);
  op.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 0.0f);
  op.finalize();
}

void Graph::reshape(Tensor x, Tensor out) {
  Descriptor& op = ops_.emplace_back(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, at(x));
  op.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, at(out));
  op.finalize();
}

void Graph::reduce(cudnnReduceTensorOp_t reduction, Tensor x, Tensor out) {
  Descriptor kind(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  kind.set(CUDNN_ATTR_REDUCTION_OPERATOR, reduction);
  kind.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  kind.finalize();
  Descriptor& op = ops_.emplace_back(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
  op.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, at(x));
  op.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, at(out));
  op.finalize();
}

void Graph::add_pointwise(const Descriptor& kind, std::initializer_list<Tensor> in, Tensor out) {
  constexpr std::array kInputs = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                  CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  TANDEM_CHECK(in.size() <= kInputs.size());
  Descriptor& op = ops_.emplace_back(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
  size_t slot = 0;
  for (const Tensor tensor : in) op.set(kInputs[slot++], at(tensor));
  op.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(out));
  op.finalize();
}

void Graph::pointwise(cudnnPointwiseMode_t mode, std::initializer_list<Tensor> in, Tensor out,
                      cudnnDataType_t compute) {
  Descriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  kind.set(CUDNN_ATTR_POINTWISE_MODE, mode);
  kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, compute);
  kind.finalize();
  add_pointwise(kind, in, out);
}

Graph::Tensor Graph::pointwise(cudnnPointwiseMode_t mode, std::initializer_list<Tensor> in,
                               cudnnDataType_t type, cudnnDataType_t compute) {
  const Tensor out = temporary(layout(*in.begin()), type);
  pointwise(mode, in, out, compute);
  return out;
}

Graph::Tensor Graph::index(Tensor like, int64_t axis) {
  Descriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_GEN_INDEX);
  kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  kind.set(CUDNN_ATTR_POINTWISE_AXIS, axis);
  kind.finalize();
  const Tensor out = temporary(layout(like), CUDNN_DATA_INT32);
  add_pointwise(kind, {like}, out);
  return out;
}

void Graph::finalize(cudnnHandle_t handle) {
  graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, std::span<const Descriptor>(ops_));
  graph_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  graph_.finalize();
}

std::vector<Descriptor> engine_configs(const Graph& graph, cudnnBackendHeurMode_t mode) {
  Descriptor query(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  query.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.operations());
  query.set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  query.finalize();
  return query.get_descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
}

std::vector<cudnnBackendNumericalNote_t> notes_of(const Descriptor& config) {
  const std::vector<Descriptor> engines =
      config.get_descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  TANDEM_CHECK(engines.size() == 1, "{} engines of one config", engines.size());
  return engines.front().get_notes(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
}

Plan::Plan(const Graph& graph, Descriptor config)
    : config_(std::move(config)), ids_(graph.bound_ids_), scalars_(graph.scalars_) {
  ids_.insert(ids_.end(), graph.scalar_ids_.begin(), graph.scalar_ids_.end());
  plan_.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config_);
  plan_.finalize();
  workspace_bytes_ = static_cast<size_t>(plan_.get_integer(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
}

void Plan::run(cudnnHandle_t handle, std::span<void* const> pointers, void* workspace) const {
  TANDEM_CHECK(pointers.size() + scalars_.size() == ids_.size(), "{} tensors", pointers.size());
  for (const void* pointer : pointers)
    TANDEM_CHECK(reinterpret_cast<int64_t>(pointer) % kAlignment == 0, "a tensor at {}", pointer);
  std::vector<void*> values(pointers.begin(), pointers.end());
  for (const float& scalar : scalars_) values.push_back(const_cast<float*>(&scalar));
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const int64_t>(ids_));
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::span<void* const>(values));
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace);
  pack.finalize();
  check(library().execute(handle, plan_.raw(), pack.raw()), "cudnnBackendExecute");
}

}  // namespace tandem::cuda::cudnn
