// As connect (comm/connect.h), with everything encrypted that goes over tcp between ranks. Throws CommError,
// the same on all ranks, where one's certificate is refused.
#pragma once

#include "tandem/comm/connect.h"

namespace tandem {

Communicators connect_encrypted(const WorldInfo& world, const MeshPosition& position,
                                const ConnectOptions& options);

}  // namespace tandem
