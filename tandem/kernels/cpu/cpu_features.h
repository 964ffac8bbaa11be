// Which vector instructions this process uses, and how fast they can possibly go.
#pragma once

#include <cstdint>
#include <string_view>

namespace tandem::cpu {

// Each level includes those before it. Portable is plain x86-64 (SSE2).
enum class Isa : uint8_t { Portable, Avx2, Avx512, Avx512Bf16, Amx };

std::string_view isa_name(Isa isa);  // as TANDEM_ISA spells it: "portable", "avx2", "avx512", ...
Isa detected_isa();                  // the highest level that the CPU and the operating system support

// The level in use: detected_isa(), or what the environment variable TANDEM_ISA lowers it to. The first
// call settles it for the process, for Highway's dispatch too. Throws DeviceError if TANDEM_ISA names an
// unknown level or one that this machine lacks.
Isa selected_isa();

// Measured peak of one core, in GFLOP/s: independent multiply-adds in registers, nothing else. Takes about
// 50 ms. The bf16 figure is of the matrix instructions that bf16 products use at this level; without any,
// they run in fp32 and the figure is the fp32 one.
double measure_peak_f32(Isa isa);
double measure_peak_bf16(Isa isa);

}  // namespace tandem::cpu
