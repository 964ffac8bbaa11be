// What lies where in the arena of activations over one step, from plan.json: for each buffer its place, its
// bytes, and the commands from which to which it holds something. Only a planned arena has such a picture.
#pragma once

#include <nlohmann/json.hpp>

namespace tandem::dash {

// {executable, arena_bytes, commands: [[kernel, block, phase]], buffers: [[offset, bytes, first, last]]};
// null where the plan is not one of ours, or empty.
nlohmann::ordered_json arena_picture(const nlohmann::json& plan);

}  // namespace tandem::dash
