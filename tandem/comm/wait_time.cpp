#include "tandem/comm/wait_time.h"

#include "tandem/comm/group_communicator.h"

namespace tandem {

double wait_time_s(const Communicators& comms) {
  double sum = 0;
  for (const Axis axis : kAxes) {
    if (const auto* group = dynamic_cast<const GroupCommunicator*>(comms.get(axis))) sum += group->waited_s();
  }
  return sum;
}

}  // namespace tandem
