// Numbers as people read them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem {

std::string format_bytes(int64_t bytes);                     // "512 B", "1.5 MiB"
std::string format_count(double count);                      // "950", "12.3k", "1.24M"
std::string count_of(int64_t count, std::string_view noun);  // "1 thread", "2 threads", "2 passes"
std::string format_loss(double loss);                        // "1.4177", "nan"
std::string format_duration(double seconds);  // "0.42 s", "12.5 s", "3m 05s", "2h 07m", "4d 03h"

// As a time to wait: one that is too long for a clock, which counts nanoseconds, is some years.
std::chrono::milliseconds wait_of(double seconds);

}  // namespace tandem
