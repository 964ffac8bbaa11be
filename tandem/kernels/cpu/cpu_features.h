// Which vector instructions this process uses, and how fast they can possibly go.
#pragma once

#include <cstdint>
#include <string_view>

#include "tandem/base/dtype.h"

namespace tandem::cpu {

// Each level includes those before it. Portable is plain x86-64 (SSE2).
enum class Isa : uint8_t { Portable, Avx2, Avx512, Avx512Bf16, Amx };

std::string_view isa_name(Isa isa);  // as TANDEM_ISA spells it: "portable", "avx2", "avx512", ...
Isa detected_isa();                  // the highest level that the CPU and the operating system support

// The level in use: detected_isa(), or what the environment variable TANDEM_ISA lowers it to. The first
// call settles it for the process, for Highway's dispatch too. Throws ConfigError if TANDEM_ISA names an
// unknown level, DeviceError if it names one that this machine lacks.
Isa selected_isa();

// Measured peak of so many threads at once, in GFLOP/s: independent multiply-adds in registers, nothing else.
// At once, because cores share power, and some of them execution units: together they may do less than one
// times their number. Takes about 50 ms. Of the instructions that products of this type use at this level:
// for BF16 those for bf16 (without any, the figure is the fp32 one); for others AMX counts a sixth of its
// bf16 peak, since it makes an fp32 product of six in bf16 (gemm_split.h).
double measure_peak(Isa isa, DType storage, int num_threads);

}  // namespace tandem::cpu
