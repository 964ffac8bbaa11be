// The grammar behind builtin:stories: little stories about a child, a place and an animal friend. The
// hero, the place and the friend are chosen once and come back, so a model has to remember them.
#pragma once

#include "tandem/data/automaton.h"

namespace tandem {

const Automaton& story_automaton();  // built on first use; each story ends with a newline

}  // namespace tandem
