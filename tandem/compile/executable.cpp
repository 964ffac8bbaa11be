#include "tandem/compile/executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tandem/compile/passes/fp8.h"
#include "tandem/compile/passes/recompute.h"

namespace tandem {
namespace {

constexpr std::array<std::string_view, kNumArenas> kArenaNames = {"weights",       "master",      "gradients",
                                                                  "optimizer",     "activations", "cache",
                                                                  "communication", "workspace",   "host"};
constexpr std::array<std::string_view, 4> kPhaseNames = {"forward", "recompute", "backward", "update"};

nlohmann::json slice_json(const Slice& slice) {
  return {{"arena", arena_name(slice.arena)},
          {"offset", slice.offset},
          {"bytes", slice.type.bytes()},
          {"dtype", dtype_name(slice.type.dtype)},
          {"shape", slice.type.shape.dims()}};
}

nlohmann::json slices_json(const std::vector<Slice>& slices) {
  nlohmann::json list = nlohmann::json::array();
  for (const Slice& slice : slices) list.push_back(slice_json(slice));
  return list;
}

nlohmann::json bindings_json(const std::vector<Binding>& bindings) {
  nlohmann::json object = nlohmann::json::object();
  for (const Binding& binding : bindings) object[binding.name] = slice_json(binding.slice);
  return object;
}

nlohmann::json command_json(const Command& command) {
  nlohmann::json attrs = nlohmann::json::object();
  for (const auto& [name, value] : command.attrs.items()) {
    std::visit([&, key = name](const auto& item) { attrs[key] = item; }, value);
  }
  return {{"kernel", command.kernel},
          {"in", slices_json(command.in)},
          {"out", slices_json(command.out)},
          {"attrs", attrs},
          {"workspace_bytes", command.workspace_bytes},
          {"block", command.block},
          {"phase", kPhaseNames[static_cast<size_t>(command.phase)]},
          {"stream", command.stream},
          {"waits", command.waits},
          {"flops", command.flops},
          {"bytes", command.bytes},
          {"sent_bytes", command.sent_bytes}};
}

std::string slice_text(const Slice& slice) {
  return fmt::format("{}+{} {}{}", arena_name(slice.arena), slice.offset, dtype_name(slice.type.dtype),
                     to_string(slice.type.shape));
}

}  // namespace

std::string_view arena_name(Arena arena) { return kArenaNames[static_cast<size_t>(arena)]; }

bool runs_on_host(const Command& command) {
  if (command.op == Op::Copy || is_collective(command.op) || command.out.empty()) return false;
  return std::all_of(command.out.begin(), command.out.end(),
                     [](const Slice& slice) { return slice.arena == Arena::Host; });
}

int64_t total_bytes(const ArenaSizes& sizes) {
  int64_t total = 0;
  for (int64_t bytes : sizes) total += bytes;
  return total;
}

int64_t device_bytes(const ArenaSizes& sizes) {
  return total_bytes(sizes) - sizes[static_cast<size_t>(Arena::Host)];
}

const Persistent* CompiledStep::find(std::string_view name) const {
  for (const Persistent& persistent : persistents) {
    if (persistent.name == name) return &persistent;
  }
  return nullptr;
}

int64_t gradients_in_activations(const CompiledStep& step) {
  int64_t bytes = 0;
  for (const Persistent& item : step.persistents)
    bytes += item.slice.arena == Arena::Activations ? item.slice.type.bytes() : 0;
  return bytes;
}

int64_t matrices_in_fp8(const CompiledStep& step) {
  const Persistent* seen = step.find(kFp8Activations);
  return seen == nullptr ? 0 : seen->slice.type.shape.elems();
}

int64_t sent_bytes(const Executable& executable, Axis axis) {
  int64_t total = 0;
  for (const Command& command : executable.commands) {
    if (is_collective(command.op) && command.attrs.text("axis") == axis_name(axis))
      total += command.sent_bytes;
  }
  return total;
}

int64_t sent_per_step(const CompiledStep& step, Axis axis, int64_t micro_batches) {
  const int64_t passes = micro_batches / step.micro_batches;
  const Executable& last = step.last_pass.commands.empty() ? step.pass : step.last_pass;
  return (passes - 1) * sent_bytes(step.pass, axis) + sent_bytes(last, axis) + sent_bytes(step.update, axis);
}

nlohmann::json to_json(const Executable& executable) {
  nlohmann::json commands = nlohmann::json::array();
  for (const Command& command : executable.commands) commands.push_back(command_json(command));
  return {{"name", executable.name},
          {"inputs", bindings_json(executable.inputs)},
          {"outputs", bindings_json(executable.outputs)},
          {"commands", commands}};
}

namespace {

// In the order in which a step runs them; those it does not have are left out.
nlohmann::json executables_json(const CompiledStep& step) {
  nlohmann::json list = {to_json(step.pass), to_json(step.update), to_json(step.eval)};
  for (const Executable* extra :
       {&step.last_pass, &step.gather, &step.exchange, &step.prefill, &step.decode}) {
    if (!extra->commands.empty()) list.push_back(to_json(*extra));
  }
  return list;
}

}  // namespace

nlohmann::json to_json(const CompiledStep& step) {
  nlohmann::json arenas = nlohmann::json::object(), persistents = nlohmann::json::object();
  for (int i = 0; i < kNumArenas; ++i) arenas[std::string(kArenaNames[i])] = step.sizes[i];
  for (const Persistent& item : step.persistents) persistents[item.name] = slice_json(item.slice);
  return {{"planned_bytes", arenas},
          {"planned_total", total_bytes(step.sizes)},
          {"gradients_in_activations", gradients_in_activations(step)},
          {"parameters", step.num_params},
          {"model_flops_per_pass", step.model_flops},
          {"recompute", recompute_name(step.recompute)},
          {"micro_batches_per_pass", step.micro_batches},
          {"mesh",
           {{"data", step.position.shape.data},
            {"tensor", step.position.shape.tensor},
            {"pipeline", step.position.shape.pipeline},
            {"rank", step.position.rank()}}},
          {"persistents", persistents},
          {"executables", executables_json(step)}};
}

std::string print(const Executable& executable) {
  std::string text = fmt::format("executable {}\n", executable.name);
  for (size_t i = 0; i < executable.commands.size(); ++i) {
    const Command& command = executable.commands[i];
    std::vector<std::string> in, out;
    for (const Slice& slice : command.in) in.push_back(slice_text(slice));
    for (const Slice& slice : command.out) out.push_back(slice_text(slice));
    text +=
        fmt::format("{:4} {} ({}) -> ({})\n", i, command.kernel, fmt::join(in, ", "), fmt::join(out, ", "));
  }
  return text;
}

}  // namespace tandem
