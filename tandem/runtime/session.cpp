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

Session::Session(CompiledStep step, const KernelRegistry& registry, ThreadPool& pool)
    : step_(std::move(step)), pool_(pool), stream_(pool) {
  for (size_t i = 0; i < kNumArenas; ++i) arenas_[i] = HostArena(step_.sizes[i], pool);
  pass_ = bind(step_.pass, registry);
  update_ = bind(step_.update, registry);
  eval_ = bind(step_.eval, registry);
}

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
    BoundCommand item{&registry.by_name(command.kernel), {}, {}, &command};
    for (const Slice& slice : command.in) item.in.push_back({address(slice), slice.type});
    for (const Slice& slice : command.out) item.out.push_back({address(slice), slice.type});
    TANDEM_CHECK(command.workspace_bytes <= allocated_bytes(Arena::Workspace), "workspace of {}",
                 command.kernel);
    bound.push_back(std::move(item));
  }
  return bound;
}

void Session::run(const std::vector<BoundCommand>& commands) {
  using Clock = std::chrono::steady_clock;
  for (size_t i = 0; i < commands.size(); ++i) {
    const BoundCommand& item = commands[i];
    const KernelArgs args{item.in,
                          item.out,
                          item.command->attrs,
                          {arenas_[static_cast<size_t>(Arena::Workspace)].data(),
                           static_cast<size_t>(item.command->workspace_bytes)}};
    if (!observer_) {
      item.kernel->run(args, stream_);
      continue;
    }
    const auto start = Clock::now();
    item.kernel->run(args, stream_);
    const auto end = Clock::now();
    observer_(*item.command, i, std::chrono::duration<double>(start.time_since_epoch()).count(),
              std::chrono::duration<double>(end - start).count());
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

void Session::zero_gradients() {
  const HostArena& arena = arenas_[static_cast<size_t>(Arena::Gradients)];
  if (arena.bytes() > 0) std::memset(arena.data(), 0, static_cast<size_t>(arena.bytes()));
}

void Session::initialize(uint64_t seed) {
  for (const Persistent& item : step_.persistents) {
    std::string_view key = item.name;
    if (key.starts_with(kMasterPrefix)) {
      key.remove_prefix(kMasterPrefix.size());
    } else if (step_.find(std::string(kMasterPrefix) + item.name) != nullptr) {
      continue;  // rounded from the master below
    }
    fill_initial(buffer(item), item.slice.type, item.init, seed, key, pool_);
  }
  refresh_weights();
}

void Session::refresh_weights() {
  for (const Persistent& item : step_.persistents) {
    if (!item.name.starts_with(kMasterPrefix)) continue;
    const Persistent* weights = step_.find(std::string_view(item.name).substr(kMasterPrefix.size()));
    TANDEM_CHECK(weights != nullptr, "{} has no weights", item.name);
    round_to(buffer(*weights), weights->slice.type.dtype, buffer(item), pool_);
  }
}

}  // namespace tandem
