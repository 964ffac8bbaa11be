// The model that a GGUF file holds, by its keys: enough to plan memory for it. Stretched positions and the
// like, which need no memory, are left out.
#pragma once

#include <string>
#include <variant>

#include "tandem/hub/config_json.h"
#include "tandem/hub/gguf_reader.h"

namespace tandem::hub {

// Or why the file's model is none of ours: "architecture mamba". Throws DataError that starts with `origin`
// where a file of an architecture that is ours lacks a key, or a tensor that its keys ask for, or has it in
// another shape.
std::variant<HubConfig, std::string> gguf_model(const GgufContents& file, const std::string& origin);

// The numbers of all tensors but those that stretch positions.
int64_t gguf_parameters(const GgufContents& file);

}  // namespace tandem::hub
