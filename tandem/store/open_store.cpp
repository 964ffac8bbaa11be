#include "tandem/store/disk_store.h"

namespace tandem {

std::shared_ptr<Store> open_store(const std::string& address) { return std::make_shared<DiskStore>(address); }

}  // namespace tandem
