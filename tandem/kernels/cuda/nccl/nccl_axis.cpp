#include "tandem/kernels/cuda/nccl/nccl_axis.h"

#include <algorithm>

#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/nccl/sum_parts.h"

namespace tandem::cuda {
namespace {

constexpr int kAnyBlocks = 0;
// A send waits for its receiver beside the computation, whose processors it should leave alone meanwhile.
constexpr int kMessageBlocks = 8;
constexpr int64_t kGreetingBytes = 64;

bool is_message(const BoundCommand& item) {
  return item.command->op == Op::Send || item.command->op == Op::Recv;
}

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::F32: return ncclFloat32;
    case DType::F64: return ncclFloat64;
    case DType::I32: return ncclInt32;
    default: TANDEM_CHECK(false, "NCCL sums no {} here", dtype_name(dtype));
  }
  return ncclFloat32;
}

size_t count(int64_t n) { return static_cast<size_t>(n); }
const std::byte* part_of(const void* data, int64_t part_bytes, int part) {
  return static_cast<const std::byte*>(data) + part_bytes * part;
}

// NCCL works in place where one buffer is exactly this rank's part of the other, which is all that
// ir/ops/collective.cpp allows.
void check_place(const void* part, int64_t part_bytes, const void* whole, int rank, int size) {
  const auto* begin = static_cast<const std::byte*>(part);
  const auto* all = static_cast<const std::byte*>(whole);
  const bool apart = begin + part_bytes <= all || all + part_bytes * size <= begin;
  TANDEM_CHECK(apart || begin == all + part_bytes * rank, "a part overlaps another rank's");
}

// Several calls as one: the first failure, else how far they have come.
ncclResult_t grouped(const std::function<ncclResult_t()>& calls) {
  const ncclResult_t started = nccl().group_start();
  if (started != ncclSuccess) return started;
  const ncclResult_t called = calls();
  const ncclResult_t ended = nccl().group_end();
  return called == ncclSuccess || called == ncclInProgress ? ended : called;
}

}  // namespace

NcclAxis::NcclAxis(Axis axis, Communicator& control, const PeerWatch& watch)
    : axis_(axis), control_(control), watch_(watch), rank_(control.rank()), size_(control.size()) {}

NcclAxis::Link NcclAxis::link_of(const BoundCommand& item) const {
  const auto peer = static_cast<int>(item.command->attrs.integer("peer"));
  return item.command->op == Op::Send ? Link{rank_, peer} : Link{peer, rank_};
}

void NcclAxis::prepare(const Program& program, const std::array<Queue, kNumStreams>& queues) {
  // In the order of the map all ranks make them, so that no two wait for each other at different ones.
  std::map<Link, const Queue*> links;
  int64_t scratch = 0;
  for (const BoundCommand& item : program) {
    if (!is_over(item)) continue;
    if (is_message(item)) {
      links.emplace(link_of(item), &queues[static_cast<size_t>(item.command->stream)]);
      continue;
    }
    if (!group_) make_group();
    scratch = std::max(scratch, scratch_bytes(item));
  }
  reserve(scratch);
  for (const auto& [link, queue] : links) {
    if (!links_.contains(link)) connect(link, *queue);
  }
}

void NcclAxis::make_group() {
  ncclUniqueId id{};
  if (rank_ == 0) id = NcclCommunicator::make_id();
  control_.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0, "nccl");
  group_ = std::make_unique<NcclCommunicator>(id, rank_, size_, kAnyBlocks,
                                              fmt::format("nccl ({} axis)", axis_name(axis_)), watch_);
}

// NCCL connects two ranks at their first message, and both wait for that, though their programs may come to
// it in orders that do not allow it; so the first message is sent here.
void NcclAxis::connect(const Link& link, const Queue& queue) {
  ncclUniqueId id{};
  const auto bytes = std::as_writable_bytes(std::span(&id, 1));
  const bool sends = link.from == rank_;
  if (sends) {
    id = NcclCommunicator::make_id();
    control_.send(bytes, link.to, "nccl");
  } else {
    control_.recv(bytes, link.from, "nccl");
  }
  links_[link] = std::make_unique<NcclCommunicator>(
      id, sends ? 0 : 1, 2, kMessageBlocks,
      fmt::format("nccl ({} axis, {} to {})", axis_name(axis_), link.from, link.to), watch_);
  reserve(kGreetingBytes);
  const TensorArg greeting{scratch_.get(), {DType::U8, Shape({kGreetingBytes})}};
  if (sends) {
    send(greeting, link, queue.get());
  } else {
    recv(greeting, link, queue.get());
  }
  watch_.wait("nccl", [&] { return queue.done(); });
}

void NcclAxis::reserve(int64_t bytes) {
  if (bytes <= scratch_size_) return;
  void* memory = nullptr;
  scratch_.reset();
  check(cudaMalloc(&memory, count(bytes)), "cudaMalloc of a buffer for collectives");
  scratch_.reset(static_cast<std::byte*>(memory));
  scratch_size_ = bytes;
}

int64_t NcclAxis::scratch_bytes(const BoundCommand& item) const {
  const Command& command = *item.command;
  if (command.op == Op::AllReduce)
    return is_half(item.out[0].type.dtype) ? size_ * item.out[0].type.bytes() : 0;
  if (command.op != Op::ReduceScatter) return 0;
  const TensorArg &src = item.in[0], &dst = item.out[0];
  if (is_half(src.type.dtype)) return src.type.bytes();
  const bool direct = command.attrs.integer("accumulate") == 0 && src.type.dtype == dst.type.dtype;
  return direct ? 0 : src.type.bytes() / size_;
}

// As communicator.h counts.
int64_t NcclAxis::bytes_sent(const BoundCommand& item) const {
  switch (item.command->op) {
    case Op::Send: return item.in[0].type.bytes();
    case Op::Recv: return 0;
    case Op::AllGather: return (size_ - 1) * item.in[0].type.bytes();
    case Op::ReduceScatter: return item.in[0].type.bytes() / size_ * (size_ - 1);
    default: break;
  }
  const TensorType& type = item.out[0].type;
  return 2 * (size_ - 1) * ((type.shape.elems() + size_ - 1) / size_) * dtype_bytes(type.dtype);
}

CommCounters NcclAxis::traffic(const Program& program) const {
  CommCounters counters;
  for (const BoundCommand& item : program) {
    if (!is_over(item)) continue;
    counters.bytes_sent += bytes_sent(item);
    ++counters.calls;
  }
  return counters;
}

void NcclAxis::enqueue(const BoundCommand& item, cudaStream_t queue) {
  const Command& command = *item.command;
  const TensorArg& result = command.op == Op::Send ? item.in[0] : item.out[0];
  if (result.type.bytes() == 0) return;
  switch (command.op) {
    case Op::AllGather: return all_gather(item.in[0], result, queue);
    case Op::ReduceScatter:
      return reduce_scatter(item.in[0], result, command.attrs.integer("accumulate") != 0, queue);
    case Op::AllReduce: return all_reduce(result, queue);
    case Op::Send: return send(result, link_of(item), queue);
    case Op::Recv: return recv(result, link_of(item), queue);
    default: TANDEM_CHECK(false, "{} is no collective", op_name(command.op));
  }
}

void NcclAxis::all_gather(const TensorArg& src, const TensorArg& dst, cudaStream_t queue) {
  const int64_t bytes = src.type.bytes();
  TANDEM_CHECK(dst.type.bytes() == size_ * bytes);
  check_place(src.data, bytes, dst.data, rank_, size_);
  group_->enqueue([&](ncclComm_t comm) {
    return nccl().all_gather(src.data, dst.data, count(bytes), ncclUint8, comm, queue);
  });
}

void NcclAxis::all_reduce(const TensorArg& data, cudaStream_t queue) {
  const DType dtype = data.type.dtype;
  if (!is_half(dtype)) {
    group_->enqueue([&](ncclComm_t comm) {
      return nccl().all_reduce(data.data, data.data, count(data.elems()), nccl_type(dtype), ncclSum, comm,
                               queue);
    });
    return;
  }
  const int64_t bytes = data.type.bytes();
  group_->enqueue([&](ncclComm_t comm) {
    return nccl().all_gather(data.data, scratch_.get(), count(bytes), ncclUint8, comm, queue);
  });
  sum_parts({scratch_.get(), data.data, rank_, size_, dtype, data.data, dtype, data.elems(), false}, queue);
}

void NcclAxis::reduce_scatter(const TensorArg& src, const TensorArg& dst, bool accumulate,
                              cudaStream_t queue) {
  const int64_t part_bytes = src.type.bytes() / size_;
  const DType dtype = src.type.dtype;
  TANDEM_CHECK(src.elems() == size_ * dst.elems());
  if (dtype == dst.type.dtype) check_place(dst.data, part_bytes, src.data, rank_, size_);
  if (is_half(dtype)) {
    group_->enqueue([&](ncclComm_t comm) {
      return grouped([&] {
        ncclResult_t status = ncclSuccess;
        for (int i = 1; i < size_ && status == ncclSuccess; ++i) {
          const int to = (rank_ + i) % size_, from = (rank_ + size_ - i) % size_;
          status =
              nccl().send(part_of(src.data, part_bytes, to), count(part_bytes), ncclUint8, to, comm, queue);
          if (status != ncclSuccess) break;
          status = nccl().recv(scratch_.get() + part_bytes * from, count(part_bytes), ncclUint8, from, comm,
                               queue);
        }
        return status;
      });
    });
    const void* own = part_of(src.data, part_bytes, rank_);
    sum_parts({scratch_.get(), own, rank_, size_, dtype, dst.data, dst.type.dtype, dst.elems(), accumulate},
              queue);
    return;
  }
  const bool direct = !accumulate && dtype == dst.type.dtype;
  void* sum = direct ? dst.data : scratch_.get();
  group_->enqueue([&](ncclComm_t comm) {
    return nccl().reduce_scatter(src.data, sum, count(dst.elems()), nccl_type(dtype), ncclSum, comm, queue);
  });
  if (direct) return;
  sum_parts({sum, sum, 0, 1, dtype, dst.data, dst.type.dtype, dst.elems(), accumulate}, queue);
}

void NcclAxis::send(const TensorArg& src, const Link& link, cudaStream_t queue) {
  links_.at(link)->enqueue([&](ncclComm_t comm) {
    return nccl().send(src.data, count(src.type.bytes()), ncclUint8, 1, comm, queue);
  });
}

void NcclAxis::recv(const TensorArg& dst, const Link& link, cudaStream_t queue) {
  links_.at(link)->enqueue([&](ncclComm_t comm) {
    return nccl().recv(dst.data, count(dst.type.bytes()), ncclUint8, 0, comm, queue);
  });
}

std::vector<NcclCommunicator*> NcclAxis::communicators() const {
  std::vector<NcclCommunicator*> list;
  if (group_) list.push_back(group_.get());
  for (const auto& [link, communicator] : links_) list.push_back(communicator.get());
  return list;
}

}  // namespace tandem::cuda
