// The check every image kernel passes: near the reference with one thread, and the same bits with more.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tandem/kernels/cpu/ref/ref_kernel_run_test.h"
#include "tandem/kernels/cpu/register.h"

namespace tandem::cpu {

// Rounding of a result to its storage type, and some.
inline double storage_tolerance(DType dtype) {
  return dtype == DType::F32 ? 1e-5 : dtype == DType::BF16 ? 8e-3 : 1e-3;
}

// `tolerance` is for output 0; the others, statistics and sums, are f32.
inline void expect_matches_reference(KernelRun run, const std::string& kernel, double tolerance) {
  const KernelRegistry registry = all_kernels();
  KernelRun reference = run;
  reference.run_reference();
  run.run(registry, kernel, 1);
  for (int i = 0; i < run.num_results(); ++i) {
    SCOPED_TRACE("output " + std::to_string(i));
    expect_near(run.result(i), reference.result(i), i == 0 ? tolerance : 2e-5);
  }
  for (int threads : {2, 4}) {
    KernelRun other = run;
    other.run(registry, kernel, threads);
    for (int i = 0; i < run.num_results(); ++i) {
      EXPECT_EQ(other.result_bytes(i), run.result_bytes(i))
          << "output " << i << ", " << threads << " threads";
    }
  }
}

}  // namespace tandem::cpu
