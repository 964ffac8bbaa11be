#include "tandem/kernels/cuda/device/cuda_device.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include "tandem/base/quantity.h"
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/device/devices.h"
#include "tandem/kernels/cuda/pointwise/initialize.h"

namespace tandem::cuda {
namespace {

constexpr auto kCompute = static_cast<size_t>(kComputeStream);
// The host stops in the middle of a launch where too many wait to run, and then sees no peer that is lost:
// with peers, no more commands than this may wait.
constexpr size_t kMaxWaiting = 64;

// Makes `index` this thread's GPU before anything else of the device is made.
int64_t use_gpu(int index) {
  const std::vector<cuda::Device> found = devices();
  if (found.empty()) throw DeviceError("device: cuda: no GPU was found on this machine; use --device cpu");
  if (index >= static_cast<int>(found.size())) {
    throw DeviceError(
        "device: cuda: this rank's GPU is number {}, but this machine has {}; start fewer ranks a node",
        index, found.size());
  }
  check(cudaSetDevice(index), "cudaSetDevice");
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<int64_t>(free);
}

}  // namespace

CudaDevice::CudaDevice(int index, ThreadPool& pool, const Communicators* comms)
    : index_(index), free_before_(use_gpu(index)), pool_(pool), host_pool_(pool.num_threads()) {
  if (comms != nullptr) collectives_ = std::make_unique<GpuCollectives>(*comms);
}

CudaDevice::~CudaDevice() {
  if (collectives_) leave_peers();
  cudaDeviceSynchronize();
  if (pinned_) cudaHostUnregister(host_arena_.data());
}

void CudaDevice::wait(const Queue& queue) {
  if (!collectives_) return queue.wait();
  wait_for_peers([&] { return queue.done(); });
}

void CudaDevice::wait(const Event& event) {
  if (!collectives_) return event.wait();
  wait_for_peers([&] { return event.done(); });
}

void CudaDevice::wait_for_peers(const std::function<bool()>& done) {
  try {
    collectives_->wait(done);
  } catch (...) {
    abort_peers();
    throw;
  }
}

// Nothing of NCCL's ends while a graph holds its collectives, and a graph that waits for a lost peer ends
// only when NCCL tells its kernels to: both at the same time.
void CudaDevice::abort_peers() {
  std::thread abort([this] {
    cudaSetDevice(index_);
    collectives_->abort();
  });
  graphs_.clear();
  abort.join();
}

// Together with the others where all went well; else without a word, as they have been told already.
void CudaDevice::leave_peers() noexcept {
  try {
    if (std::uncaught_exceptions() > 0) {
      abort_peers();
      return;
    }
    wait(queues_[kCompute]);
    graphs_.clear();
    collectives_->finish();
  } catch (const std::exception&) {
    abort_peers();
  }
}

DeviceMemory CudaDevice::allocate(Arena arena, int64_t bytes) {
  if (arena == Arena::Host) {
    auto memory = std::make_shared<HostArena>(bytes, pool_);
    host_arena_ = memory->span();
    return {{memory, memory->data()}, memory->bytes()};
  }
  if (bytes == 0) return {};
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw PlanError(
        "memory: the GPU refused {} for the {} arena: something else uses its memory (see nvidia-smi), "
        "or set memory.recompute=auto or memory.limit, which names what fits",
        format_bytes(bytes), arena_name(arena));
  }
  check(status, "cudaMalloc");
  arena_bytes_ += bytes;
  std::shared_ptr<std::byte> memory(static_cast<std::byte*>(data), [](std::byte* at) { cudaFree(at); });
  clear(memory.get(), bytes);
  return {std::move(memory), bytes};
}

void CudaDevice::write(std::byte* to, std::span<const std::byte> from) {
  const Queue& queue = queues_[kCompute];
  if (from.size() <= PinnedRing::kSlotBytes) {
    ring_.write(to, from, queue, [this](const Event& event) { wait(event); });
    return;
  }
  // A copy of memory that is not page-locked waits for all before it, and sees no peer that is lost.
  if (collectives_) wait(queue);
  check(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyDefault, queue.get()), "cudaMemcpyAsync");
  queue.wait();
}

void CudaDevice::read(std::span<std::byte> to, const std::byte* from) {
  const Queue& queue = queues_[kCompute];
  if (collectives_) wait(queue);  // as in write()
  if (!to.empty())
    check(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDefault, queue.get()), "cudaMemcpyAsync");
  queue.wait();
  mailbox_.deliver();
  throw_host_error();
}

void CudaDevice::read_later(std::span<std::byte> to, const std::byte* from) {
  mailbox_.fetch(to, from, queues_[kCompute]);
}

bool CudaDevice::on_host(const std::byte* at) const {
  return at >= host_arena_.data() && at < host_arena_.data() + host_arena_.size();
}

void CudaDevice::clear(std::byte* at, int64_t bytes) {
  if (on_host(at)) {
    wait(queues_[kCompute]);
    fill_zeros({at, static_cast<size_t>(bytes)}, pool_);
    return;
  }
  check(cudaMemsetAsync(at, 0, static_cast<size_t>(bytes), queues_[kCompute].get()), "cudaMemsetAsync");
}

// The GPU does both for the host arena, too.
void CudaDevice::initialize(std::byte* buffer, DType dtype, const Piece& piece, uint64_t seed) {
  if (on_host(buffer)) pin_host_arena();
  fill_initial(buffer, dtype, starting_values(piece, seed), queues_[kCompute].get());
}

void CudaDevice::round(std::byte* to, DType dtype, const std::byte* from_f32, int64_t elems) {
  if (on_host(to) || on_host(from_f32)) pin_host_arena();
  round_to(to, dtype, reinterpret_cast<const float*>(from_f32), elems, queues_[kCompute].get());
}

// Copies between the memories need page-locked memory to run beside computation, and kernels to reach it at
// all. Locking takes a while, so it is done only where there are any.
void CudaDevice::pin_host_arena() {
  if (pinned_ || host_arena_.empty()) return;
  check(cudaHostRegister(host_arena_.data(), host_arena_.size(), cudaHostRegisterMapped), "cudaHostRegister");
  pinned_ = true;
}

void CudaDevice::prepare(const Program& program) {
  if (collectives_) collectives_->prepare(program, queues_);
  for (const BoundCommand& item : program) {
    if (item.command->op == Op::Copy) pin_host_arena();
    if (runs_on_host(*item.command)) {
      TANDEM_CHECK(item.workspace.empty(), "{} wants scratch memory of the host", item.kernel->name);
      host_calls_[&item] = {this, &item};
    } else if (item.kernel != nullptr && item.kernel->prepare != nullptr) {
      Stream stream(pool_, queues_[kCompute].get());
      item.kernel->prepare(item.args(), stream);
    }
  }
}

void CudaDevice::run_host_call(const BoundCommand& item) noexcept {
  try {
    Stream stream(host_pool_);
    item.kernel->run(item.args(), stream);
  } catch (...) {
    const std::lock_guard lock(host_error_mutex_);
    host_error_ = std::current_exception();
  }
}

void CudaDevice::throw_host_error() {
  const std::lock_guard lock(host_error_mutex_);
  if (host_error_) std::rethrow_exception(std::exchange(host_error_, nullptr));
}

void CudaDevice::launch(const BoundCommand& item, const Queue& queue) {
  if (item.kernel == nullptr) return collectives_->enqueue(item, queue.get());
  if (const auto call = host_calls_.find(&item); call != host_calls_.end()) {
    const auto run = [](void* data) {
      const auto* host_call = static_cast<const HostCall*>(data);
      host_call->device->run_host_call(*host_call->item);
    };
    check(cudaLaunchHostFunc(queue.get(), run, &call->second), "cudaLaunchHostFunc");
    return;
  }
  Stream stream(pool_, queue.get());
  item.kernel->run(item.args(), stream);
}

// As lower.cpp's add_waits has it: a command beside the computation comes after all computation before it,
// and after those of other queues that it names; computation waits for those it names.
void CudaDevice::enqueue(const Program& program, bool captured, const std::vector<Event>* marks) {
  size_t used = 0;
  const auto mark = [&](const Queue& queue) -> const Event& {
    if (used == events_.size()) events_.emplace_back();
    events_[used].record(queue);
    return events_[used++];
  };
  events_.reserve(2 * program.size() + kNumStreams);  // references to them stay good
  std::vector<const Event*> done(program.size(), nullptr);
  std::array<bool, kNumStreams> forked{};
  const Queue& compute = queues_[kCompute];
  for (const BoundCommand& item : program) {
    const auto stream = static_cast<size_t>(item.command->stream);
    const Queue& queue = queues_[stream];
    if (stream != kCompute) mark(compute).hold(queue);
    for (int32_t earlier : item.command->waits) done[static_cast<size_t>(earlier)]->hold(queue);
    if (marks != nullptr) (*marks)[2 * item.index].record(queue);
    launch(item, queue);
    if (marks != nullptr) (*marks)[2 * item.index + 1].record(queue);
    if (stream != kCompute) {
      done[item.index] = &mark(queue);
      forked[stream] = true;
    }
    if (collectives_ && !captured && item.index % kMaxWaiting == kMaxWaiting - 1) wait(compute);
  }
  for (size_t stream = 0; stream < kNumStreams; ++stream) {
    if (forked[stream]) mark(queues_[stream]).hold(compute);
  }
}

void CudaDevice::run(const Program& program, const CommandObserver& observer) {
  if (program.empty()) return;
  throw_host_error();
  if (observer) {
    observe(program, observer);
    return;
  }
  const Event& ended = ended_[runs_++ % ended_.size()];
  if (collectives_) {
    wait(ended);  // of the run before the last
    collectives_->count(program);
  }
  GraphProgram& graph = graphs_[&program];
  try {
    if (graph.ready()) {
      graph.launch(queues_[kCompute]);
    } else if (graph.runs++ == 0) {
      enqueue(program, /*captured=*/false);  // loads every kernel, which must not happen during capture
    } else {
      graph.capture(queues_[kCompute], [&] { enqueue(program, /*captured=*/true); });
      graph.launch(queues_[kCompute]);
    }
  } catch (...) {
    if (collectives_) abort_peers();
    throw;
  }
  if (collectives_) ended.record(queues_[kCompute]);
}

// Each command between two events of its queue.
void CudaDevice::observe(const Program& program, const CommandObserver& observer) {
  const Queue& compute = queues_[kCompute];
  wait(compute);
  const Event start(/*timed=*/true);
  std::vector<Event> marks;
  marks.reserve(2 * program.size());
  for (size_t i = 0; i < 2 * program.size(); ++i) marks.emplace_back(/*timed=*/true);
  const double start_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  start.record(compute);
  if (collectives_) collectives_->count(program);
  enqueue(program, /*captured=*/false, &marks);
  wait(compute);
  throw_host_error();
  for (const BoundCommand& item : program) {
    const Event& before = marks[2 * item.index];
    observer(*item.command, item.index, start_s + before.seconds_since(start),
             marks[2 * item.index + 1].seconds_since(before));
  }
}

int64_t CudaDevice::library_bytes() const {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  // Other processes that have freed memory meanwhile make it less than nothing.
  return std::max<int64_t>(0, free_before_ - static_cast<int64_t>(free) - arena_bytes_);
}

}  // namespace tandem::cuda
