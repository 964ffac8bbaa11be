// NCCL, loaded when ranks first need it: a run on one GPU needs none.
#pragma once

#include <nccl.h>

#include "tandem/kernels/cuda/device/shared_library.h"

namespace tandem::cuda {

struct NcclLibrary {
  SharedLibrary library{"libnccl.so.2"};

#define TANDEM_NCCL(member, symbol) decltype(&symbol) member = library.load<decltype(&symbol)>(#symbol)
  TANDEM_NCCL(get_unique_id, ncclGetUniqueId);
  TANDEM_NCCL(comm_init, ncclCommInitRankConfig);
  TANDEM_NCCL(comm_state, ncclCommGetAsyncError);
  TANDEM_NCCL(comm_finalize, ncclCommFinalize);
  TANDEM_NCCL(comm_destroy, ncclCommDestroy);
  TANDEM_NCCL(comm_abort, ncclCommAbort);
  TANDEM_NCCL(error_string, ncclGetErrorString);
  TANDEM_NCCL(last_error, ncclGetLastError);
  TANDEM_NCCL(group_start, ncclGroupStart);
  TANDEM_NCCL(group_end, ncclGroupEnd);
  TANDEM_NCCL(all_gather, ncclAllGather);
  TANDEM_NCCL(all_reduce, ncclAllReduce);
  TANDEM_NCCL(reduce_scatter, ncclReduceScatter);
  TANDEM_NCCL(send, ncclSend);
  TANDEM_NCCL(recv, ncclRecv);
#undef TANDEM_NCCL
};

const NcclLibrary& nccl();  // DeviceError where it is nowhere, or lacks something

}  // namespace tandem::cuda
