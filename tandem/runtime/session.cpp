#include "tandem/runtime/session.h"

#include <chrono>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/runtime/initialize.h"

namespace tandem {
namespace {

const Slice& named(const std::vector<Binding>& bindings, std::string_view name) {
  for (const Binding& binding : bindings) {
    if (binding.name == name) return binding.slice;
  }
  TANDEM_CHECK(false, "executable has no input or output '{}'", name);
  return bindings.front().slice;
}

}  // namespace

ChooseKernel choose_from(const KernelRegistry& registry, int num_threads) {
  return [&registry, num_threads](const Node& node, const std::vector<TensorType>& in) {
    const CallSignature call{node.op, in, node.outputs, &node.attrs};
    const Kernel& kernel = registry.choose(call);
    const size_t bytes = kernel.workspace == nullptr ? 0 : kernel.workspace(call, num_threads);
    return KernelChoice{kernel.name, static_cast<int64_t>((bytes + 63) / 64 * 64)};
  };
}

Session::Session(CompiledStep step, const KernelRegistry& registry, ThreadPool& pool,
                 const Communicators* comms)
    : step_(std::move(step)), pool_(pool), stream_(pool), comms_(comms) {
  for (size_t i = 0; i < kNumArenas; ++i) arenas_[i] = HostArena(step_.sizes[i], pool);
  pass_ = bind(step_.pass, registry);
  last_pass_ = bind(step_.last_pass, registry);
  update_ = bind(step_.update, registry);
  eval_ = bind(step_.eval, registry);
  gather_ = bind(step_.gather, registry);
  for (const auto* list : {&pass_, &last_pass_, &update_, &eval_, &gather_}) {
    for (const BoundCommand& item : *list) {
      auto& stream = streams_[static_cast<size_t>(item.command->stream)];
      if (item.command->stream != kComputeStream && !stream) stream = std::make_unique<TaskStream>();
    }
  }
}

Session::~Session() = default;

std::byte* Session::address(const Slice& slice) const {
  const HostArena& arena = arenas_[static_cast<size_t>(slice.arena)];
  TANDEM_CHECK(slice.offset >= 0 && slice.offset + slice.type.bytes() <= arena.bytes(),
               "slice outside {} arena", arena_name(slice.arena));
  return arena.data() + slice.offset;
}

std::vector<Session::BoundCommand> Session::bind(const Executable& executable,
                                                 const KernelRegistry& registry) const {
  std::vector<BoundCommand> bound;
  bound.reserve(executable.commands.size());
  for (const Command& command : executable.commands) {
    BoundCommand item{nullptr, nullptr, {}, {}, {}, &command, bound.size()};
    if (is_collective(command.op)) {
      const Axis axis = parse_axis(command.attrs.text("axis"));
      item.comm = comms_ == nullptr ? nullptr : comms_->get(axis);
      item.label =
          command.block == kNoBlock ? std::string("outside blocks") : fmt::format("blocks.{}", command.block);
      TANDEM_CHECK(item.comm != nullptr, "{} over the {} axis, which has no communicator", command.kernel,
                   axis_name(axis));
    } else {
      item.kernel = &registry.by_name(command.kernel);
    }
    for (const Slice& slice : command.in) item.in.push_back({address(slice), slice.type});
    for (const Slice& slice : command.out) item.out.push_back({address(slice), slice.type});
    TANDEM_CHECK(command.workspace_bytes <= allocated_bytes(Arena::Workspace), "workspace of {}",
                 command.kernel);
    bound.push_back(std::move(item));
  }
  return bound;
}

namespace {

std::span<std::byte> bytes_of(const TensorArg& arg) {
  return {static_cast<std::byte*>(arg.data), static_cast<size_t>(arg.type.bytes())};
}

void run_collective(Communicator& comm, const Command& command, std::span<const TensorArg> in,
                    std::span<const TensorArg> out, std::string_view label) {
  switch (command.op) {
    case Op::AllGather: comm.all_gather(bytes_of(in[0]), bytes_of(out[0]), label); return;
    case Op::ReduceScatter:
      comm.reduce_scatter(bytes_of(in[0]), in[0].type.dtype, bytes_of(out[0]), out[0].type.dtype,
                          command.attrs.integer("accumulate") != 0, label);
      return;
    case Op::AllReduce: comm.all_reduce(bytes_of(out[0]), out[0].type.dtype, label); return;
    case Op::Send: comm.send(bytes_of(in[0]), static_cast<int>(command.attrs.integer("peer")), label); return;
    case Op::Recv:
      comm.recv(bytes_of(out[0]), static_cast<int>(command.attrs.integer("peer")), label);
      return;
    default: TANDEM_CHECK(false, "{} is no collective", op_name(command.op));
  }
}

}  // namespace

void Session::execute(const BoundCommand& item, Stream& stream) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = observer_ ? Clock::now() : Clock::time_point();
  if (item.comm != nullptr) {
    run_collective(*item.comm, *item.command, item.in, item.out, item.label);
  } else {
    const KernelArgs args{item.in,
                          item.out,
                          item.command->attrs,
                          {arenas_[static_cast<size_t>(Arena::Workspace)].data(),
                           static_cast<size_t>(item.command->workspace_bytes)}};
    item.kernel->run(args, stream);
  }
  if (!observer_) return;
  const auto end = Clock::now();
  const std::lock_guard lock(observer_mutex_);
  observer_(*item.command, item.index, std::chrono::duration<double>(start.time_since_epoch()).count(),
            std::chrono::duration<double>(end - start).count());
}

void Session::run(const std::vector<BoundCommand>& commands) {
  try {
    run_streams(commands);
  } catch (const std::exception& error) {
    if (comms_ != nullptr) comms_->abort(error.what());  // no stream waits for a peer that will not come
    throw;
  }
}

void Session::run_streams(const std::vector<BoundCommand>& commands) {
  std::vector<TaskStream::Ticket> tickets(commands.size());
  const auto wait_for = [&](int32_t earlier) {
    const auto index = static_cast<size_t>(earlier);
    streams_[static_cast<size_t>(commands[index].command->stream)]->wait(tickets[index]);
  };
  for (const BoundCommand& item : commands) {
    const auto& stream = streams_[static_cast<size_t>(item.command->stream)];
    if (!stream) {
      for (int32_t earlier : item.command->waits) wait_for(earlier);
      execute(item, stream_);
      continue;
    }
    // The command's own stream does the waiting; tickets of what it waits for are there already.
    std::vector<std::pair<TaskStream*, TaskStream::Ticket>> before;
    for (int32_t earlier : item.command->waits) {
      const auto index = static_cast<size_t>(earlier);
      before.emplace_back(streams_[static_cast<size_t>(commands[index].command->stream)].get(),
                          tickets[index]);
    }
    tickets[item.index] = stream->submit([this, &item, before = std::move(before)] {
      for (const auto& [other, ticket] : before) other->wait(ticket);
      execute(item, copy_stream_);
    });
  }
  for (const auto& stream : streams_) {
    if (stream) stream->wait_all();
  }
}

void Session::write(const Executable& executable, std::string_view input, std::span<const std::byte> bytes) {
  const Slice& slice = named(executable.inputs, input);
  TANDEM_CHECK(static_cast<int64_t>(bytes.size()) == slice.type.bytes(), "input '{}' takes {} bytes, not {}",
               input, slice.type.bytes(), bytes.size());
  std::memcpy(address(slice), bytes.data(), bytes.size());
}

std::span<const std::byte> Session::read(const Executable& executable, std::string_view output) const {
  const Slice& slice = named(executable.outputs, output);
  return {address(slice), static_cast<size_t>(slice.type.bytes())};
}

std::span<std::byte> Session::buffer(const Persistent& persistent) const {
  return {address(persistent.slice), static_cast<size_t>(persistent.slice.type.bytes())};
}

void Session::initialize(uint64_t seed) {
  for (const Persistent& item : step_.persistents) {
    const std::span<std::byte> bytes = buffer(item);
    // What no piece covers is padding, and stays zero.
    if (item.pieces.size() > 1) std::memset(bytes.data(), 0, bytes.size());
    for (const Piece& piece : item.pieces) fill_initial(bytes, item.slice.type.dtype, piece, seed, pool_);
  }
  refresh_weights();
}

void Session::refresh_weights() {
  const auto bytes_at = [&](const Slice& slice) {
    return std::span(address(slice), static_cast<size_t>(slice.type.bytes()));
  };
  for (const MasterCopy& copy : step_.masters)
    round_to(bytes_at(copy.weights), copy.weights.type.dtype, bytes_at(copy.master), pool_);
  run(gather_);
}

}  // namespace tandem
