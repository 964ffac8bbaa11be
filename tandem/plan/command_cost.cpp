#include "tandem/plan/command_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "tandem/base/digest.h"
#include "tandem/base/error.h"

namespace tandem::plan {
namespace {

// Of the vendor's memory bandwidth, what long copies reach, and the bytes below which they do not get there:
// the time to fill and drain the memory pipeline, a few microseconds.
constexpr double kMemoryShare = 0.88;
constexpr double kMemoryRamp = 2.5e-6;
constexpr double kMatmulRamp = 2.0e-6;
// Of the rate that the best shape reaches, what a training step's products do at most.
constexpr double kMatmulShare = 0.955;
constexpr int kMostParts = 16;  // that the inner dimension is cut into

struct Tile {
  double m, n;
  double share;  // of the rate, when all multiprocessors work on such tiles
};
constexpr std::array<Tile, 9> kTiles = {{{256, 128, 1.0},
                                         {128, 256, 1.0},
                                         {128, 192, 0.98},
                                         {192, 128, 0.98},
                                         {128, 160, 0.96},
                                         {128, 128, 0.93},
                                         {128, 64, 0.78},
                                         {64, 128, 0.78},
                                         {64, 64, 0.60}}};

bool is_recent(const Gpu& gpu) { return gpu.arch == "hopper" || gpu.arch == "blackwell"; }

// Inner length that a tile's prologue and epilogue are worth: less where the next tile's loads begin early.
double inner_extra(const Gpu& gpu) { return is_recent(gpu) ? 30 : 64; }

double memory_seconds(const Gpu& gpu, double bytes) {
  return bytes <= 0 ? 0 : kMemoryRamp + bytes / (gpu.memory_bandwidth * kMemoryShare);
}

// How attention's kernels fare: at `best` for long sequences and heads of 128, half of it at `half` tokens.
struct AttentionSpeed {
  double best, half;
};
AttentionSpeed attention_speed(const Gpu& gpu, bool gradient) {
  if (is_recent(gpu)) return gradient ? AttentionSpeed{0.78, 1500} : AttentionSpeed{0.92, 1100};
  return gradient ? AttentionSpeed{0.72, 650} : AttentionSpeed{0.80, 500};
}
constexpr double kHeadsOf64 = 0.74;  // against heads of 128

double rate_of(const Gpu& gpu, DType dtype) {
  switch (dtype) {
    case DType::F8E4M3:
    case DType::F8E5M2: return gpu.matmul_fp8 > 0 ? gpu.matmul_fp8 : gpu.matmul;
    case DType::BF16:
    case DType::F16: return gpu.matmul;
    default: return gpu.matmul_fp32;
  }
}

// The narrowest of the operands: what the matrix units multiply.
DType operand_type(const Command& command) {
  DType narrow = DType::F32;
  for (const Slice& slice : command.in) {
    const DType dtype = slice.type.dtype;
    const bool is_float = dtype != DType::I32 && dtype != DType::I16 && dtype != DType::U8;
    if (is_float && slice.type.shape.rank() >= 2 && dtype_bytes(dtype) < dtype_bytes(narrow)) narrow = dtype;
  }
  return narrow;
}

double product_seconds(const Gpu& gpu, const Command& command) {
  const Shape& out = command.out[0].type.shape;
  const auto m = static_cast<double>(out.rows()), n = static_cast<double>(out.last());
  const double k = static_cast<double>(command.flops) / (2 * m * n);
  const double busy = matmul_seconds(gpu, m, n, k, rate_of(gpu, operand_type(command)));
  return std::max(busy, memory_seconds(gpu, static_cast<double>(command.bytes)));
}

// The head and the loss in one: products of chunks of rows, and passes over the logits between them, which
// the loss reads and, where there are gradients, writes anew.
double loss_seconds(const Gpu& gpu, const Command& command) {
  const Slice& x = command.in[0];
  const auto rows = static_cast<double>(x.type.shape.rows()), k = static_cast<double>(x.type.shape.last());
  const auto vocabulary = static_cast<double>(command.in[1].type.shape.rows());
  const double touches = command.op == Op::LinearCrossEntropyGrad ? 3 : 2;
  const double products = static_cast<double>(command.flops) / (2 * rows * vocabulary * k);
  const double logits =
      memory_seconds(gpu, rows * vocabulary * touches * static_cast<double>(dtype_bytes(x.type.dtype)));
  return products * matmul_seconds(gpu, rows, vocabulary, k, rate_of(gpu, operand_type(command))) + logits;
}

double attention_seconds(const Cluster& cluster, const Command& command) {
  const Gpu& gpu = cluster.gpu;
  const bool gradient = command.op == Op::AttentionGrad;
  const Shape& qkv = command.in[gradient ? 1 : 0].type.shape;
  const int64_t heads = command.attrs.integer("heads"), kv_heads = command.attrs.integer("kv_heads");
  const auto tokens = static_cast<double>(qkv[1]);
  const double width = static_cast<double>(qkv[2]) / static_cast<double>(heads + 2 * kv_heads);
  const AttentionSpeed speed = attention_speed(gpu, gradient);
  const double of_head = width >= 128 ? 1 : kHeadsOf64 + (1 - kHeadsOf64) * std::max(0.0, width - 64) / 64;
  const double rate =
      rate_of(gpu, operand_type(command)) * speed.best * of_head * tokens / (tokens + speed.half);
  const double busy = static_cast<double>(command.flops) / rate;
  if (cluster.fused_attention) return busy + kMatmulRamp;
  // Scores go to memory and back between two products, softmax and dropout, and nothing of them is left out.
  const double scores = static_cast<double>(qkv[0] * heads) * tokens * tokens;
  const double bytes = scores * (gradient ? 17 : 13);
  const double products =
      2 * static_cast<double>(command.flops) / (0.6 * rate_of(gpu, operand_type(command)));
  return products + memory_seconds(gpu, bytes) + 5 * kMatmulRamp;
}

double device_seconds(const Cluster& cluster, const Command& command) {
  const Gpu& gpu = cluster.gpu;
  switch (command.op) {
    case Op::Attention:
    case Op::AttentionGrad: return attention_seconds(cluster, command) * cluster.attention_factor;
    case Op::LinearCrossEntropy:
    case Op::LinearCrossEntropyGrad: return loss_seconds(gpu, command);
    case Op::Conv2d:
    case Op::Conv2dGradInput:
    case Op::Conv2dGradWeight: {
      constexpr double kShare = 0.5;  // small images leave multiprocessors idle
      const double busy = static_cast<double>(command.flops) / (kShare * rate_of(gpu, operand_type(command)));
      return kMatmulRamp + std::max(busy, memory_seconds(gpu, static_cast<double>(command.bytes)));
    }
    default: break;
  }
  if (command.flops > 0 && !command.out.empty() && command.out[0].type.shape.rank() >= 2)
    return product_seconds(gpu, command);
  const bool updates = command.phase == Phase::Update;
  return memory_seconds(gpu, static_cast<double>(command.bytes)) * (updates ? 1 : cluster.pointwise_factor);
}

// Of a core, where the kernel was not measured: products at the rate of the operands, everything else by its
// bytes.
double cpu_seconds(const Gpu& core, const Command& command) {
  return static_cast<double>(command.flops) / rate_of(core, operand_type(command)) +
         static_cast<double>(command.bytes) / (core.memory_bandwidth * kMemoryShare);
}

}  // namespace

double matmul_seconds(const Gpu& gpu, double m, double n, double k, double rate) {
  if (m <= 0 || n <= 0 || k <= 0) return 0;
  const double of_sm = rate * kMatmulShare / gpu.sms;
  double best = 0;
  for (const Tile& tile : kTiles) {
    const double tiles = std::ceil(m / tile.m) * std::ceil(n / tile.n);
    for (int parts = 1; parts <= kMostParts; ++parts) {  // of k, whose sums are added up at the end
      if (parts > 1 && (k / parts < 512 || tiles * parts > 4 * gpu.sms)) break;
      const double waves = std::ceil(tiles * parts / gpu.sms);
      const double of_tile = 2 * tile.m * tile.n * (k / parts + inner_extra(gpu)) / (of_sm * tile.share);
      // They are mostly still in the cache.
      const double sums = parts > 1 ? m * n * 2 * parts / gpu.memory_bandwidth : 0;
      const double seconds = waves * of_tile + sums;
      if (best == 0 || seconds < best) best = seconds;
    }
  }
  return best + kMatmulRamp;
}

std::string command_signature(const Command& command) {
  std::string text = command.kernel;
  for (const Slice& slice : command.in)
    text += fmt::format(" {}{}", dtype_name(slice.type.dtype), to_string(slice.type.shape));
  text += " ->";
  for (const Slice& slice : command.out)
    text += fmt::format(" {}{}", dtype_name(slice.type.dtype), to_string(slice.type.shape));
  for (const char* name : {"trans_a", "trans_b", "causal", "window", "heads", "kv_heads"}) {
    if (command.attrs.has(name)) text += fmt::format(" {}={}", name, command.attrs.integer(name));
  }
  constexpr size_t kLongest = 300;  // an update names every tensor; keys of YAML end at 1024
  if (text.size() <= kLongest) return text;
  return fmt::format("{} #{}", command.kernel, digest_hex(std::as_bytes(std::span(text))));
}

CommandCost command_cost(const Cluster& cluster, const Command& command, int ranks_on_node) {
  if (!cluster.kernels.empty()) {
    const auto known = cluster.kernels.find(command_signature(command));
    if (known != cluster.kernels.end())
      return {known->second, runs_on_host(command) ? Work::Host : Work::Device};
  }
  const auto bytes = static_cast<double>(command.bytes);
  if (command.op == Op::Copy) {
    const bool crosses = !command.in.empty() && !command.out.empty() &&
                         (command.in[0].arena == Arena::Host) != (command.out[0].arena == Arena::Host);
    if (!crosses) return {memory_seconds(cluster.gpu, bytes), Work::Device};
    constexpr double kStart = 8e-6;
    return {kStart + static_cast<double>(command.out[0].type.bytes()) / cluster.gpu.pcie, Work::Copy};
  }
  if (cluster.is_cpu()) return {cpu_seconds(cluster.gpu, command), Work::Device};
  if (runs_on_host(command)) return {bytes / (cluster.host_bandwidth / ranks_on_node), Work::Host};
  return {device_seconds(cluster, command) * cluster.compute_factor, Work::Device};
}

}  // namespace tandem::plan
