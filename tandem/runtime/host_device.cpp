#include "tandem/runtime/host_device.h"

#include <chrono>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/system.h"
#include "tandem/comm/places/place_page.h"
#include "tandem/runtime/arena.h"
#include "tandem/runtime/initialize.h"

namespace tandem {
namespace {

std::span<std::byte> bytes_of(const TensorArg& arg) {
  return {static_cast<std::byte*>(arg.data), static_cast<size_t>(arg.type.bytes())};
}

void run_collective(Communicator& comm, const BoundCommand& item) {
  const Command& command = *item.command;
  const std::string_view label = item.label;
  const auto peer = [&] { return static_cast<int>(command.attrs.integer("peer")); };
  switch (command.op) {
    case Op::AllGather: comm.all_gather(bytes_of(item.in[0]), bytes_of(item.out[0]), label); return;
    case Op::ReduceScatter:
      comm.reduce_scatter(bytes_of(item.in[0]), item.in[0].type.dtype, bytes_of(item.out[0]),
                          item.out[0].type.dtype, static_cast<SumInto>(command.attrs.integer("accumulate")),
                          label);
      return;
    case Op::AllReduce: comm.all_reduce(bytes_of(item.out[0]), item.out[0].type.dtype, label); return;
    case Op::Send: comm.send(bytes_of(item.in[0]), peer(), label); return;
    case Op::Recv: comm.recv(bytes_of(item.out[0]), peer(), label); return;
    default: TANDEM_CHECK(false, "{} is no collective", op_name(command.op));
  }
}

static_assert(kNumStreams <= PlacePage::kStreams);

// A core of a slow machine, with a thread of its own: for commands that were never seen before.
constexpr double kSlowFlops = 1e9, kSlowBytes = 2e8;

void tell_command(const BoundCommand& item, Doing doing) {
  PlacePage* page = place_page();
  if (page == nullptr) return;
  const Command& command = *item.command;
  LineRecord record;
  record.index = static_cast<int32_t>(item.index);
  record.block = command.block;
  record.expected_s = static_cast<float>(static_cast<double>(command.flops) / kSlowFlops +
                                         static_cast<double>(command.bytes) / kSlowBytes);
  record.doing = doing;
  record.set_name(op_name(command.op));
  page->streams[command.stream].write(record);
}

void tell_idle(int stream, Doing doing = Doing::Nothing) {
  PlacePage* page = place_page();
  if (page == nullptr) return;
  LineRecord record;
  record.doing = doing;
  page->streams[stream].write(record);
}

}  // namespace

HostDevice::HostDevice(ThreadPool& pool, const Communicators* comms)
    : pool_(pool), stream_(pool), comms_(comms) {}

DeviceMemory HostDevice::allocate(Arena /*arena*/, int64_t bytes) {
  auto arena = std::make_shared<HostArena>(bytes, pool_);
  return {{arena, arena->data()}, arena->bytes()};
}

void HostDevice::write(std::byte* to, std::span<const std::byte> from) {
  std::memcpy(to, from.data(), from.size());
}

void HostDevice::read(std::span<std::byte> to, const std::byte* from) {
  if (!to.empty()) std::memcpy(to.data(), from, to.size());
}

void HostDevice::clear(std::byte* at, int64_t bytes) { fill_zeros({at, static_cast<size_t>(bytes)}, pool_); }

void HostDevice::initialize(std::byte* buffer, DType dtype, const Piece& piece, uint64_t seed) {
  fill_initial(buffer, dtype, piece, seed, pool_);
}

void HostDevice::round(std::byte* to, DType dtype, const std::byte* from_f32, int64_t elems) {
  round_to({to, static_cast<size_t>(elems * dtype_bytes(dtype))}, dtype,
           {from_f32, static_cast<size_t>(elems) * sizeof(float)}, pool_);
}

void HostDevice::prepare(const Program& program) {
  for (const BoundCommand& item : program) {
    auto& stream = streams_[static_cast<size_t>(item.command->stream)];
    if (item.command->stream != kComputeStream && !stream) stream = std::make_unique<TaskStream>();
    if (item.kernel != nullptr && item.kernel->prepare != nullptr) item.kernel->prepare(item.args(), stream_);
  }
}

void HostDevice::execute(const BoundCommand& item, Stream& stream, const CommandObserver& observer) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = observer ? Clock::now() : Clock::time_point();
  tell_command(item, item.kernel == nullptr ? Doing::Communicates : Doing::Computes);
  if (item.kernel == nullptr) {
    if (!fault_ || !fault_->loses(item)) run_collective(*comms_->get(item.axis), item);
  } else {
    item.kernel->run(item.args(), stream);
  }
  if (!observer) return;
  const auto end = Clock::now();
  const std::lock_guard lock(observer_mutex_);
  observer(*item.command, item.index, std::chrono::duration<double>(start.time_since_epoch()).count(),
           std::chrono::duration<double>(end - start).count());
}

void HostDevice::execute_with(const TestFault& fault, const Program& program, const BoundCommand& item,
                              Stream& stream, const CommandObserver& observer) {
  tell_command(item, item.kernel == nullptr ? Doing::Communicates : Doing::Computes);
  if (item.kernel == nullptr) return execute(item, stream, observer);
  fault.before(program, item);
  const double start = steady_s();
  execute(item, stream, observer);
  fault.after(item, steady_s() - start);
}

void HostDevice::run(const Program& program, const CommandObserver& observer) {
  std::vector<TaskStream::Ticket> tickets(program.size());
  const auto wait_for = [&](int32_t earlier) {
    const auto index = static_cast<size_t>(earlier);
    streams_[static_cast<size_t>(program[index].command->stream)]->wait(tickets[index]);
  };
  for (const BoundCommand& item : program) {
    const auto& stream = streams_[static_cast<size_t>(item.command->stream)];
    if (!stream) {
      if (!item.command->waits.empty()) tell_command(item, Doing::WaitsForStream);
      for (int32_t earlier : item.command->waits) wait_for(earlier);
      if (fault_) [[unlikely]] {
        execute_with(*fault_, program, item, stream_, observer);
      } else {
        execute(item, stream_, observer);
      }
      continue;
    }
    // The command's own stream does the waiting; tickets of what it waits for are there already.
    std::vector<std::pair<TaskStream*, TaskStream::Ticket>> before;
    for (int32_t earlier : item.command->waits) {
      const auto index = static_cast<size_t>(earlier);
      before.emplace_back(streams_[static_cast<size_t>(program[index].command->stream)].get(),
                          tickets[index]);
    }
    tickets[item.index] = stream->submit([this, &item, &observer, before = std::move(before)] {
      for (const auto& [other, ticket] : before) other->wait(ticket);
      execute(item, copy_stream_, observer);
      tell_idle(item.command->stream);
    });
  }
  tell_idle(kComputeStream, Doing::WaitsForStream);
  for (const auto& stream : streams_) {
    if (stream) stream->wait_all();
  }
  tell_idle(kComputeStream);
}

}  // namespace tandem
