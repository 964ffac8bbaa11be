// What services want to know of a run beside its rows.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace tandem {

// The last part of its directory.
std::string run_name(const std::filesystem::path& run_dir);

// That many letters and digits that no other run has.
std::string random_id(size_t length, std::string_view characters);

// What the user's environment says, or `otherwise`.
std::string from_environment(const char* variable, std::string_view otherwise);

// The last by name of what begins and ends so; empty where there is none.
std::filesystem::path newest_named(const std::filesystem::path& folder, std::string_view begin,
                                   std::string_view end);

// What a sink has to say of its file after a resume: the step that it lacks, where that is not expected.
std::string lacks(const std::filesystem::path& path, int64_t step, int64_t last);

}  // namespace tandem
