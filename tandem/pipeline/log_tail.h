// A step's log: what each attempt printed, under a line that says which.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tandem::pipeline {

std::string log_header(int64_t attempt, const std::string& time, const std::vector<std::string>& command);

// The last lines of the last attempt, each indented and cut to a width that fits; empty where it printed
// nothing.
std::string log_tail(const std::filesystem::path& log);

// A command as a person would type it.
std::string quoted(const std::vector<std::string>& command);

}  // namespace tandem::pipeline
