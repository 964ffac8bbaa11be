// The files of page/, which the build puts into the program: one file to copy, nothing to fetch.
#pragma once

#include <string>
#include <string_view>

namespace tandem::dash {

std::string page_file(std::string_view name);  // "app.js"; empty where there is none

}  // namespace tandem::dash
