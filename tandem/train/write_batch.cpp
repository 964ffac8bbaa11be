#include "tandem/train/write_batch.h"

#include "tandem/compile/passes/unroll.h"

namespace tandem {

void write_if_there(Session& session, const Executable& executable, std::string_view input,
                    std::span<const std::byte> bytes) {
  for (const Binding& binding : executable.inputs) {
    if (binding.name == input) session.write(executable, input, bytes);
  }
}

void write_batch(Session& session, const Executable& executable, const MicroBatch& batch,
                 std::optional<int> place) {
  const auto write = [&](const char* input, const void* src) {
    if (src == nullptr) return;
    const std::string name = place ? micro_batch_name(input, *place) : input;
    for (const Binding& binding : executable.inputs) {
      if (binding.name != name) continue;
      session.write(executable, name,
                    {static_cast<const std::byte*>(src), static_cast<size_t>(binding.slice.type.bytes())});
    }
  };
  write("tokens", batch.tokens);
  write("images", batch.images);
  write("targets", batch.targets);
  write("segments", batch.segments);
  write("positions", batch.positions);
  write(kPartnerInput.data(), batch.partners);
  write(kShareInput.data(), batch.shares);
  write(kSampleInput.data(), &batch.first_sample);
}

}  // namespace tandem
