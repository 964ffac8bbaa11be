#include "tandem/runtime/session.h"

#include "tandem/base/error.h"
#include "tandem/comm/places/place_page.h"
#include "tandem/runtime/host_device.h"

namespace tandem {
namespace {

const Slice& named(const std::vector<Binding>& bindings, std::string_view name) {
  for (const Binding& binding : bindings) {
    if (binding.name == name) return binding.slice;
  }
  TANDEM_CHECK(false, "executable has no input or output '{}'", name);
  return bindings.front().slice;
}

KernelChoice choose(const KernelRegistry& registry, const Node& node, const std::vector<TensorType>& in,
                    int num_threads) {
  const CallSignature call{node.op, in, node.outputs, &node.attrs};
  const Kernel& kernel = registry.choose(call);
  const size_t bytes = kernel.workspace == nullptr ? 0 : kernel.workspace(call, num_threads);
  return {kernel.name, static_cast<int64_t>((bytes + 63) / 64 * 64)};
}

// While one lives, the rank waits for its device, whose commands are not seen from here.
class WaitsForDevice {
 public:
  WaitsForDevice() { tell(Doing::WaitsForDevice); }
  ~WaitsForDevice() { tell(Doing::Nothing); }
  WaitsForDevice(const WaitsForDevice&) = delete;
  WaitsForDevice& operator=(const WaitsForDevice&) = delete;

 private:
  static void tell(Doing doing) {
    PlacePage* page = place_page();
    if (page == nullptr) return;
    LineRecord record;
    record.doing = doing;
    page->streams[kComputeStream].write(record);
  }
};

}  // namespace

ChooseKernel choose_from(const KernelRegistry& registry, int num_threads) {
  return [&registry, num_threads](const Node& node, const std::vector<TensorType>& in, bool) {
    return choose(registry, node, in, num_threads);
  };
}

ChooseKernel choose_from(const Backend& backend, int num_threads) {
  return [&backend, num_threads](const Node& node, const std::vector<TensorType>& in, bool on_host) {
    return choose(on_host ? backend.on_host() : backend.kernels, node, in, num_threads);
  };
}

Session::Session(CompiledStep step, const Backend& backend, ThreadPool& pool, const Communicators* comms)
    : Session(std::move(step), backend.kernels, backend.on_host(), backend.make_device(pool, comms), pool,
              comms) {}

Session::Session(CompiledStep step, const KernelRegistry& registry, ThreadPool& pool,
                 const Communicators* comms)
    : Session(std::move(step), registry, registry, std::make_unique<HostDevice>(pool, comms), pool, comms) {}

Session::Session(CompiledStep step, const KernelRegistry& registry, const KernelRegistry& host_registry,
                 std::unique_ptr<Device> device, ThreadPool& pool, const Communicators* comms)
    : step_(std::move(step)), pool_(pool), comms_(comms), device_(std::move(device)) {
  for (size_t i = 0; i < kNumArenas; ++i)
    arenas_[i] = device_->allocate(static_cast<Arena>(i), step_.sizes[i]);
  const std::pair<Program*, const Executable*> programs[] = {
      {&pass_, &step_.pass},     {&last_pass_, &step_.last_pass}, {&update_, &step_.update},
      {&eval_, &step_.eval},     {&gather_, &step_.gather},       {&prefill_, &step_.prefill},
      {&decode_, &step_.decode}, {&exchange_, &step_.exchange}};
  for (const auto& [program, executable] : programs) {
    *program = bind(*executable, registry, host_registry);
    device_->prepare(*program);
  }
}

Session::~Session() = default;

std::byte* Session::address(const Slice& slice) const {
  TANDEM_CHECK(slice.offset >= 0 && slice.offset + slice.type.bytes() <= allocated_bytes(slice.arena),
               "slice outside {} arena", arena_name(slice.arena));
  return memory(slice.arena).data.get() + slice.offset;
}

Program Session::bind(const Executable& executable, const KernelRegistry& registry,
                      const KernelRegistry& host_registry) const {
  Program program;
  program.reserve(executable.commands.size());
  for (const Command& command : executable.commands) {
    BoundCommand item{nullptr, Axis::Data, {}, {}, {}, {}, &command, program.size()};
    if (is_collective(command.op)) {
      item.axis = parse_axis(command.attrs.text("axis"));
      item.label =
          command.block == kNoBlock ? std::string("outside blocks") : fmt::format("blocks.{}", command.block);
      TANDEM_CHECK(comms_ != nullptr && comms_->get(item.axis) != nullptr,
                   "{} over the {} axis, which has no communicator", command.kernel, axis_name(item.axis));
    } else {
      item.kernel = &(runs_on_host(command) ? host_registry : registry).by_name(command.kernel);
    }
    for (const Slice& slice : command.in) item.in.push_back({address(slice), slice.type});
    for (const Slice& slice : command.out) item.out.push_back({address(slice), slice.type});
    TANDEM_CHECK(command.workspace_bytes <= allocated_bytes(Arena::Workspace), "workspace of {}",
                 command.kernel);
    item.workspace = memory(Arena::Workspace).span().first(static_cast<size_t>(command.workspace_bytes));
    program.push_back(std::move(item));
  }
  return program;
}

void Session::run(const Program& program) {
  if (place_page() != nullptr) {
    const std::pair<const Program*, const char*> names[] = {{&pass_, "pass"},
                                                            {&last_pass_, "pass"},
                                                            {&update_, "update"},
                                                            {&eval_, "evaluation"},
                                                            {&gather_, "gather"}};
    for (const auto& [known, name] : names) {
      if (known == &program) tell_program(name, static_cast<int64_t>(program.size()));
    }
  }
  try {
    device_->run(program, observer_);
  } catch (const std::exception& error) {
    if (comms_ != nullptr) comms_->abort(error.what());  // no stream waits for a peer that will not come
    throw;
  }
}

void Session::write(const Executable& executable, std::string_view input, std::span<const std::byte> bytes) {
  const Slice& slice = named(executable.inputs, input);
  TANDEM_CHECK(static_cast<int64_t>(bytes.size()) == slice.type.bytes(), "input '{}' takes {} bytes, not {}",
               input, slice.type.bytes(), bytes.size());
  device_->write(address(slice), bytes);
}

std::span<const std::byte> Session::read(const Executable& executable, std::string_view output) const {
  const Slice& slice = named(executable.outputs, output);
  const auto size = static_cast<size_t>(slice.type.bytes());
  if (device_->shares_memory()) return {address(slice), size};
  std::vector<std::byte>& copy = outputs_[fmt::format("{} {}", executable.name, output)];
  copy.resize(size);
  const WaitsForDevice waits;
  device_->read(copy, address(slice));
  return copy;
}

void Session::read_later(const Executable& executable, std::string_view output,
                         std::span<std::byte> to) const {
  const Slice& slice = named(executable.outputs, output);
  TANDEM_CHECK(static_cast<int64_t>(to.size()) == slice.type.bytes());
  device_->read_later(to, address(slice));
}

std::span<std::byte> Session::buffer(const Slice& slice) const {
  TANDEM_CHECK(reaches(slice), "{} is in a device's memory", arena_name(slice.arena));
  return {address(slice), static_cast<size_t>(slice.type.bytes())};
}

void Session::read_buffer(const Slice& slice, int64_t offset, std::span<std::byte> to) const {
  TANDEM_CHECK(offset + static_cast<int64_t>(to.size()) <= slice.type.bytes());
  device_->read(to, address(slice) + offset);
}

void Session::write_buffer(const Slice& slice, int64_t offset, std::span<const std::byte> from) {
  TANDEM_CHECK(offset + static_cast<int64_t>(from.size()) <= slice.type.bytes());
  device_->write(address(slice) + offset, from);
}

void Session::initialize(uint64_t seed) {
  for (const Persistent& item : step_.persistents) {
    if (item.slice.arena == Arena::Activations) continue;  // overwritten by every pass
    std::byte* const buffer = address(item.slice);
    device_->clear(buffer, item.slice.type.bytes());  // padding, too, which no piece covers
    for (const Piece& piece : item.pieces) {
      if (piece.init != "zeros") device_->initialize(buffer, item.slice.type.dtype, piece, seed);
    }
  }
}

void Session::refresh_weights() {
  for (const Persistent& item : step_.persistents) {
    if (!item.weights || item.slice.type.dtype != DType::F32) continue;
    device_->round(address(*item.weights), item.weights->type.dtype, address(item.slice),
                   item.slice.type.shape.elems());
  }
  if (averages()) return blend_weights(0);
  run(gather_);
}

void Session::blend_weights(float share) {
  write(step_.gather, "share", std::as_bytes(std::span(&share, 1)));
  run(gather_);
}

}  // namespace tandem
