#include "tandem/kernels/cuda/nccl/nccl_communicator.h"

#include "tandem/base/error.h"

namespace tandem::cuda {
namespace {

bool is_failure(ncclResult_t status) { return status != ncclSuccess && status != ncclInProgress; }

}  // namespace

ncclUniqueId NcclCommunicator::make_id() {
  ncclUniqueId id{};
  const ncclResult_t status = nccl().get_unique_id(&id);
  if (status != ncclSuccess)
    throw CommError("nccl: {}: {}", nccl().error_string(status), nccl().last_error(nullptr));
  return id;
}

NcclCommunicator::NcclCommunicator(const ncclUniqueId& id, int rank, int size, int max_blocks,
                                   std::string name, const PeerWatch& watch)
    : name_(std::move(name)), watch_(watch) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (max_blocks > 0) config.maxCTAs = max_blocks;
  ncclComm_t comm = nullptr;
  const ncclResult_t status = nccl().comm_init(&comm, size, id, rank, &config);
  comm_.reset(comm);
  settle(status);
}

void NcclCommunicator::enqueue(const std::function<ncclResult_t(ncclComm_t comm)>& call) {
  TANDEM_CHECK(comm_ != nullptr, "{} has ended", name_);
  settle(call(comm_.get()));
}

void NcclCommunicator::settle(ncclResult_t status) const {
  if (is_failure(status)) fail(status);
  watch_.wait(name_, [&] {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = nccl().comm_state(comm_.get(), &state);
    if (is_failure(asked)) fail(asked);
    if (is_failure(state)) fail(state);
    return state == ncclSuccess;
  });
}

void NcclCommunicator::check() const {
  ncclResult_t state = ncclSuccess;
  if (comm_ == nullptr) return;
  const ncclResult_t asked = nccl().comm_state(comm_.get(), &state);
  if (is_failure(asked)) fail(asked);
  if (is_failure(state)) fail(state);
}

void NcclCommunicator::fail(ncclResult_t status) const {
  watch_.fail(name_, fmt::format("{}: {}", nccl().error_string(status), nccl().last_error(comm_.get())));
}

void NcclCommunicator::finish() { settle(nccl().comm_finalize(comm_.get())); }

void NcclCommunicator::destroy() { nccl().comm_destroy(comm_.release()); }

void NcclCommunicator::abort(std::span<NcclCommunicator* const> list) {
  if (list.empty()) return;
  nccl().group_start();
  for (NcclCommunicator* communicator : list) communicator->comm_.reset();
  nccl().group_end();
}

}  // namespace tandem::cuda
