// Collectives on GPUs against the CPU's, bit for bit: sums of fp32 are of small whole numbers, which are
// exact in any order; those of 16-bit types of anything. The ranks are processes, which share a GPU where
// there are too few of them.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"
#include "tandem/comm/ranks_test.h"
#include "tandem/comm/sum.h"
#include "tandem/kernels/cuda/backend.h"
#include "tandem/kernels/cuda/device/cuda_device.h"
#include "tandem/kernels/cuda/kernel_test.h"
#include "tandem/kernels/cuda/nccl/sum_parts.h"
#include "tandem/runtime/host_device.h"

extern char** environ;

namespace tandem::cuda {
namespace {

constexpr int kRanks = 3;
constexpr unsigned kPatienceS = 90;  // past it, a rank hangs

bool is_rank() { return std::getenv("TANDEM_TEST_RANK") != nullptr; }

// Runs this same test in `kRanks` new processes, each of which sees is_rank(); CUDA does not outlive a fork.
// Returns how they ended: "exit 0", "signal 9".
std::vector<std::string> run_ranks() {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  std::string filter = fmt::format("--gtest_filter={}.{}", test.test_suite_name(), test.name());
  std::string program = "/proc/self/exe";
  const int port = free_port();
  std::vector<pid_t> started;
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<std::string> variables = {
        "TANDEM_TEST_RANK=1",
        fmt::format("RANK={}", rank),
        fmt::format("LOCAL_RANK={}", rank),
        fmt::format("WORLD_SIZE={}", kRanks),
        fmt::format("LOCAL_WORLD_SIZE={}", kRanks),
        "MASTER_ADDR=127.0.0.1",
        fmt::format("MASTER_PORT={}", port),
    };
    std::vector<char*> environment, arguments = {program.data(), filter.data(), nullptr};
    for (std::string& variable : variables) environment.push_back(variable.data());
    for (char** variable = environ; *variable != nullptr; ++variable) environment.push_back(*variable);
    environment.push_back(nullptr);
    pid_t pid = 0;
    if (posix_spawn(&pid, program.c_str(), nullptr, nullptr, arguments.data(), environment.data()) == 0)
      started.push_back(pid);
  }
  std::vector<std::string> ends;
  for (pid_t pid : started) {
    int status = 0;
    waitpid(pid, &status, 0);
    ends.push_back(WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status))
                                       : fmt::format("exit {}", WEXITSTATUS(status)));
  }
  return ends;
}

// Commands over tensors of one flat memory, which no two commands share.
class Commands {
 public:
  Commands(int rank, int size) : rank_(rank), size_(size) {}

  Slice tensor(DType dtype, int64_t elems) {
    const Slice slice{Arena::Activations, bytes_, {dtype, Shape({elems})}};
    bytes_ += (slice.type.bytes() + 63) / 64 * 64;
    tensors_.push_back(slice);
    return slice;
  }
  Slice own_part(const Slice& whole) const {
    const TensorType type{whole.type.dtype, Shape({whole.type.shape.elems() / size_})};
    return {whole.arena, whole.offset + rank_ * type.bytes(), type};
  }

  void add(Op op, Axis axis, std::vector<Slice> in, const Slice& out, int peer = 0, bool accumulate = false) {
    Command command;
    command.op = op;
    command.in = std::move(in);
    command.out = {out};
    command.attrs = {{"axis", std::string(axis_name(axis))},
                     {"size", int64_t{size_}},
                     {"peer", int64_t{peer}},
                     {"accumulate", int64_t{accumulate}}};
    command.stream = op == Op::Send                         ? kSendStream
                     : axis == Axis::Data && op != Op::Recv ? kDataStream
                                                            : kComputeStream;
    commands_.push_back(std::move(command));
  }
  void reduce_scatter(Axis axis, DType from, DType to, int64_t part, bool accumulate) {
    const Slice src = tensor(from, size_ * part), dst = tensor(to, part);
    add(Op::ReduceScatter, axis, {src, dst}, dst, 0, accumulate);
  }
  void all_reduce(Axis axis, DType dtype, int64_t elems) {
    const Slice data = tensor(dtype, elems);
    add(Op::AllReduce, axis, {data}, data);
  }

  Program bind(std::byte* base) const {
    Program program;
    for (const Command& command : commands_) {
      BoundCommand item{nullptr,       parse_axis(command.attrs.text("axis")), "test", {}, {}, {}, &command,
                        program.size()};
      for (const Slice& slice : command.in) item.in.push_back({base + slice.offset, slice.type});
      for (const Slice& slice : command.out) item.out.push_back({base + slice.offset, slice.type});
      program.push_back(std::move(item));
    }
    return program;
  }

  int64_t bytes() const { return bytes_; }
  const std::vector<Slice>& tensors() const { return tensors_; }

 private:
  const int rank_, size_;
  int64_t bytes_ = 0;
  std::vector<Slice> tensors_;
  std::deque<Command> commands_;  // programs point at them
};

void fill(std::span<std::byte> memory, const Slice& slice, uint64_t seed) {
  std::byte* at = memory.data() + slice.offset;
  for (int64_t i = 0; i < slice.type.shape.elems(); ++i) {
    const auto bits = static_cast<uint32_t>((seed + static_cast<uint64_t>(i)) * 0x9E3779B97F4A7C15u >> 33);
    const int whole = static_cast<int>(bits % 33) - 16;
    const float any = static_cast<float>(bits) / static_cast<float>(1 << 30) - 1;
    const auto put = [&](auto value) {
      std::memcpy(at + i * static_cast<int64_t>(sizeof(value)), &value, sizeof(value));
    };
    switch (slice.type.dtype) {
      case DType::F32: put(static_cast<float>(whole)); break;
      case DType::F64: put(static_cast<double>(whole)); break;
      case DType::I32: put(whole); break;
      case DType::BF16: put(to_bfloat16(any)); break;
      case DType::F16: put(to_half(any)); break;
      case DType::I16: put(static_cast<int16_t>(bits)); break;
      default: put(static_cast<uint8_t>(bits)); break;
    }
  }
}

// Everything a plan may hold, over the data axis, which runs beside the computation, and the world's.
Commands all_collectives(int rank, int size) {
  Commands list(rank, size);
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  const Slice small = list.tensor(DType::F32, 1001), gathered = list.tensor(DType::F32, 1001 * size);
  list.add(Op::AllGather, Axis::Data, {small, gathered}, gathered);
  const Slice whole = list.tensor(DType::BF16, 4096 * size);
  list.add(Op::AllGather, Axis::World, {list.own_part(whole), whole}, whole);
  list.reduce_scatter(Axis::Data, DType::F32, DType::F32, 5000, false);
  list.reduce_scatter(Axis::Data, DType::F32, DType::F32, 5000, true);
  list.reduce_scatter(Axis::World, DType::F32, DType::F32, 77, true);
  const Slice sums = list.tensor(DType::F32, 2048 * size);
  list.add(Op::ReduceScatter, Axis::Data, {sums, list.own_part(sums)}, list.own_part(sums));
  for (DType narrow : {DType::BF16, DType::F16}) {
    list.reduce_scatter(Axis::Data, narrow, DType::F32, 4096, true);
    list.reduce_scatter(Axis::Data, narrow, DType::F32, 999, false);
    list.reduce_scatter(Axis::World, narrow, narrow, 4096, false);
    list.reduce_scatter(Axis::World, narrow, narrow, 333, false);
    list.all_reduce(Axis::World, narrow, 333);
  }
  const Slice narrow_sums = list.tensor(DType::BF16, 1024 * size);
  list.add(Op::ReduceScatter, Axis::World, {narrow_sums, list.own_part(narrow_sums)},
           list.own_part(narrow_sums));
  list.all_reduce(Axis::World, DType::F32, 1001);
  list.all_reduce(Axis::World, DType::F64, 21);
  list.all_reduce(Axis::Data, DType::I32, 7);
  // All send to both sides before anybody receives, more than any buffer on the way holds.
  for (int peer : {next, before}) {
    const Slice message = list.tensor(DType::U8, 24 << 20);
    list.add(Op::Send, Axis::Data, {message}, message, peer);
  }
  for (int peer : {before, next}) list.add(Op::Recv, Axis::Data, {}, list.tensor(DType::U8, 24 << 20), peer);
  return list;
}

struct Ranks {
  Ranks() {
    alarm(kPatienceS);
    ConnectOptions options;
    options.timeout = options.connect_timeout = std::chrono::seconds(60);
    world = read_world();
    backend = make_backend({}, world);
    comms = connect(world, MeshPosition::of(data_mesh(world.world_size), world.rank), options);
    device = backend.make_device(pool, &comms);
  }
  WorldInfo world;
  ThreadPool pool{1};
  Backend backend;
  Communicators comms;
  std::unique_ptr<tandem::Device> device;  // first to go
};

TEST(Nccl, collectives_give_the_bits_and_counts_of_the_cpu_enqueued_captured_and_replayed) {
  TANDEM_NEEDS_GPU();
  if (!is_rank()) {
    EXPECT_EQ(run_ranks(), std::vector<std::string>(kRanks, "exit 0"));
    return;
  }
  Ranks rank;
  const Commands list = all_collectives(rank.world.rank, rank.world.world_size);
  const auto size = static_cast<size_t>(list.bytes());
  std::vector<std::byte> start(size), expected, found(size);
  for (const Slice& slice : list.tensors())
    fill(start, slice, static_cast<uint64_t>(slice.offset) * 64 + static_cast<uint64_t>(rank.world.rank));
  expected = start;

  std::array<int64_t, kNumAxes> sent{};
  for (Axis axis : {Axis::World, Axis::Data})
    sent[static_cast<size_t>(axis)] = -rank.comms.get(axis)->counters().bytes_sent;
  HostDevice host(rank.pool, &rank.comms);
  const Program on_host = list.bind(expected.data());
  host.prepare(on_host);
  host.run(on_host, {});
  for (Axis axis : {Axis::World, Axis::Data})
    sent[static_cast<size_t>(axis)] += rank.comms.get(axis)->counters().bytes_sent;

  const DeviceMemory memory = rank.device->allocate(Arena::Activations, list.bytes());
  const Program on_gpu = list.bind(memory.data.get());
  rank.device->prepare(on_gpu);
  constexpr int kRuns = 4;
  for (int run = 0; run < kRuns; ++run) {
    rank.device->write(memory.data.get(), start);
    rank.device->run(on_gpu, {});
    rank.device->read(found, memory.data.get());
    for (const BoundCommand& item : on_host) {
      const TensorArg& result = item.out[0];
      const auto at = static_cast<size_t>(static_cast<std::byte*>(result.data) - expected.data());
      EXPECT_EQ(
          std::memcmp(found.data() + at, expected.data() + at, static_cast<size_t>(result.type.bytes())), 0)
          << "run " << run << ", command " << item.index << ": " << op_name(item.command->op) << " of "
          << dtype_name(result.type.dtype) << " over " << axis_name(item.axis);
    }
  }
  const auto& gpu = static_cast<const CudaDevice&>(*rank.device);
  for (Axis axis : {Axis::World, Axis::Data})
    EXPECT_EQ(gpu.counters(axis).bytes_sent, kRuns * sent[static_cast<size_t>(axis)]) << axis_name(axis);
  rank.device.reset();  // before what it reads from
}

TEST(Nccl, a_rank_that_dies_is_named_by_the_others_and_hangs_nobody) {
  TANDEM_NEEDS_GPU();
  if (!is_rank()) {
    EXPECT_EQ(run_ranks(), (std::vector<std::string>{"exit 0", "signal 9", "exit 0"}));
    return;
  }
  Ranks rank;
  const Commands list = all_collectives(rank.world.rank, rank.world.world_size);
  const DeviceMemory memory = rank.device->allocate(Arena::Activations, list.bytes());
  const Program program = list.bind(memory.data.get());
  std::vector<std::byte> found(64);
  rank.device->prepare(program);
  const auto step = [&] {
    rank.device->run(program, {});
    rank.device->read(found, memory.data.get());
  };
  try {
    for (int run = 0; run < 3; ++run)
      step();  // the third is a graph, in which others may be when rank 1 dies
    if (rank.world.rank == 1) raise(SIGKILL);
    for (int run = 0; run < 3; ++run) step();
    ADD_FAILURE() << "nobody noticed";
  } catch (const CommError& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos) << error.what();
  }
  rank.device.reset();
}

TEST(Nccl, parts_are_summed_as_the_cpu_sums_them) {
  TANDEM_NEEDS_GPU();
  constexpr int kParts = 5;
  for (const auto& [from, to] : {std::pair{DType::F32, DType::F32},
                                 {DType::BF16, DType::F32},
                                 {DType::F16, DType::F32},
                                 {DType::F32, DType::BF16},
                                 {DType::F32, DType::F16},
                                 {DType::BF16, DType::BF16},
                                 {DType::F16, DType::F16}}) {
    for (const int64_t elems : {int64_t{1}, int64_t{8}, int64_t{999}, int64_t{4096}}) {
      for (const bool accumulate : {false, true}) {
        const int rank = static_cast<int>(elems % kParts);
        Commands list(rank, kParts);
        const Slice parts = list.tensor(from, kParts * elems), dst = list.tensor(to, elems);
        std::vector<std::byte> memory(static_cast<size_t>(list.bytes())), found(memory.size());
        for (const Slice& slice : list.tensors()) fill(memory, slice, 7);
        std::byte* device = nullptr;
        ASSERT_EQ(cudaMalloc(&device, memory.size()), cudaSuccess);
        ASSERT_EQ(cudaMemcpy(device, memory.data(), memory.size(), cudaMemcpyHostToDevice), cudaSuccess);
        sum_parts({device + parts.offset, device + list.own_part(parts).offset, rank, kParts, from,
                   device + dst.offset, to, elems, accumulate},
                  nullptr);
        ASSERT_EQ(cudaMemcpy(found.data(), device, memory.size(), cudaMemcpyDeviceToHost), cudaSuccess);
        cudaFree(device);
        std::vector<const std::byte*> pointers;
        for (int i = 0; i < kParts; ++i)
          pointers.push_back(memory.data() + parts.offset + i * elems * dtype_bytes(from));
        tandem::sum_parts(pointers, from, memory.data() + dst.offset, to, elems,
                          accumulate ? SumInto::Add : SumInto::Overwrite);
        EXPECT_EQ(memory, found) << dtype_name(from) << " into " << dtype_name(to) << ", " << elems
                                 << " elements";
      }
    }
  }
}

}  // namespace
}  // namespace tandem::cuda
