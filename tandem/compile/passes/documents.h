// Documents that share a sequence, kept apart (data.documents = separate).
//
// Changes: attention sees tokens of the same document only, by the input `segments`; positions, rotary or
//   from a table, begin anew with each document, by the input `positions`. Both are i32 like the tokens.
// Keeps: everything else; what brings segments or positions of its own keeps them.
#pragma once

#include "tandem/compile/pass_info.h"
#include "tandem/ir/graph.h"

namespace tandem {

inline constexpr PassInfo kDocumentsPass = {
    .name = "documents", .needs_before = {"model"}, .needs_after = {"differentiate"}};

Graph separate_documents(const Graph& forward);

}  // namespace tandem
