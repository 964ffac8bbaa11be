// All of the program `tandem` in one call, for a program with a model of its own:
//
//   int main(int argc, char** argv) {
//     return tandem::run_command_line(argc, argv, tandem::own_model(my_model));
//   }
//
// It then has every command of docs/interface.md, with their flags and --help: train, launch, plan, ..., and
// where `tandem` builds the model that the config's family names, it builds its own from the same config.
#pragma once

#include "tandem/models/model.h"

namespace tandem {

// Runs the command that the arguments name and returns the process's exit code. Throws nothing: what goes
// wrong is a line on stderr.
int run_command_line(int argc, char** argv, const BuildModel& model = build_model);

}  // namespace tandem
