// The formats that are read, one source file each. A converter fills the draft with what its file says, and
// the sizes, of which the batch and the mesh are made at the end.
#pragma once

#include "tandem/convert/draft.h"
#include "tandem/convert/sizes.h"
#include "tandem/convert/source.h"

namespace tandem::convert {

bool is_deepspeed(const Value& root);
bool is_accelerate(const Value& root);
bool is_trainer(const Value& root);
bool is_torchtitan(const Value& root);

void convert_deepspeed(const Source& source, Draft& draft, Sizes& sizes);
void convert_accelerate(const Source& source, Draft& draft, Sizes& sizes);
void convert_trainer(const Source& source, Draft& draft, Sizes& sizes);
void convert_torchtitan(const Source& source, Draft& draft, Sizes& sizes);

// A DeepSpeed config that another file names: a table inside it, or the path of a file, beside it or from
// here.
void convert_named_deepspeed(const Source& source, std::string_view key, Draft& draft, Sizes& sizes);

// With a dash for what a run's name may not have; empty where nothing can be made of it.
std::string as_run_name(std::string text);

// What two formats say of PyTorch's FSDP: a strategy's name or number of version 1, or whether version 2
// shards again after the forward pass.
void set_fsdp_strategy(const std::string& key, const std::string& word, Draft& draft);
// The table `fsdp_config`, as accelerate and Trainer have it.
void read_fsdp_config(const Source& source, Draft& draft);
// Parameters and what the optimizer keeps, as far as the strategy allows.
void set_fsdp_offload(const std::string& key, Draft& draft);

// model.from, where `name` is a Hugging Face directory that is there; else a line for the reader to fill in.
void set_model_directory(const std::string& key, const std::string& name, const Source& source, Draft& draft);

// torchtitan's [model] name and flavor as keys of ours; false where Tandem has no such model.
bool set_torchtitan_model(const std::string& name, const std::string& flavor, Draft& draft);

}  // namespace tandem::convert
