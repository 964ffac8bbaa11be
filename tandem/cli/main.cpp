#include "tandem/cli/command_line.h"

int main(int argc, char** argv) { return tandem::run_command_line(argc, argv); }
