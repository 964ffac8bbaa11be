// Standard input, output and error of a program that was started without them.
#pragma once

namespace tandem {

// Opens /dev/null in place of each of descriptors 0, 1 and 2 that is closed. Otherwise the first files that
// the program opens get these numbers, and what it prints lands in them. Called first thing in main.
void open_standard_streams();

}  // namespace tandem
