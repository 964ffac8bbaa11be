#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "tandem/base/error.h"
#include "tandem/comm/connect.h"

namespace tandem {
namespace {

constexpr const char* kNames[] = {"RANK",
                                  "WORLD_SIZE",
                                  "LOCAL_RANK",
                                  "LOCAL_WORLD_SIZE",
                                  "GROUP_RANK",
                                  "MASTER_ADDR",
                                  "MASTER_PORT",
                                  "TORCHELASTIC_RESTART_COUNT",
                                  "TORCHELASTIC_RUN_ID",
                                  "TORCHELASTIC_USE_AGENT_STORE",
                                  "SLURM_PROCID",
                                  "SLURM_NTASKS",
                                  "SLURM_LOCALID",
                                  "SLURM_NODEID",
                                  "SLURM_LAUNCH_NODE_IPADDR",
                                  "SLURM_STEP_TASKS_PER_NODE",
                                  "SLURM_RESTART_COUNT",
                                  "OMPI_COMM_WORLD_RANK",
                                  "OMPI_COMM_WORLD_SIZE",
                                  "OMPI_COMM_WORLD_LOCAL_RANK",
                                  "OMPI_COMM_WORLD_LOCAL_SIZE",
                                  "PMI_RANK",
                                  "PMI_SIZE",
                                  "MPI_LOCALRANKID",
                                  "MPI_LOCALNRANKS",
                                  "PMIX_RANK",
                                  "TANDEM_SECRET",
                                  "TANDEM_SECRET_FILE",
                                  "TANDEM_INSECURE",
                                  "TANDEM_TRANSPORT",
                                  "TANDEM_COMM_TIMEOUT_S",
                                  "TANDEM_CONNECT_TIMEOUT_S"};

// Exactly these variables of launchers are set while it lives, and none afterwards.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& variables) {
    clear();
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() { clear(); }

 private:
  static void clear() {
    for (const char* name : kNames) unsetenv(name);
  }
};

std::string message_of(const std::map<std::string, std::string>& variables) {
  const Environment environment(variables);
  try {
    read_world();
    from_environment({});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ReadWorld, IsAloneWithoutALauncher) {
  const Environment environment({});
  const WorldInfo world = read_world();
  EXPECT_EQ(world.rank, 0);
  EXPECT_EQ(world.world_size, 1);
}

TEST(ReadWorld, TakesTorchrunsVariablesFirst) {
  const Environment environment({{"RANK", "5"},
                                 {"WORLD_SIZE", "8"},
                                 {"LOCAL_RANK", "1"},
                                 {"LOCAL_WORLD_SIZE", "4"},
                                 {"GROUP_RANK", "1"},
                                 {"MASTER_ADDR", "node-a"},
                                 {"MASTER_PORT", "1234"},
                                 {"TORCHELASTIC_RESTART_COUNT", "2"},
                                 {"TORCHELASTIC_RUN_ID", "abc"},
                                 {"SLURM_PROCID", "0"}});
  const WorldInfo world = read_world();
  EXPECT_EQ(world.rank, 5);
  EXPECT_EQ(world.world_size, 8);
  EXPECT_EQ(world.local_rank, 1);
  EXPECT_EQ(world.local_world_size, 4);
  EXPECT_EQ(world.node_rank, 1);
  EXPECT_EQ(world.master_addr, "node-a");
  EXPECT_EQ(world.master_port, 1234);
  EXPECT_EQ(world.restart_count, 2);
  EXPECT_EQ(world.run_id, "abc");
}

TEST(ReadWorld, UnderstandsSlurmAndOpenMpi) {
  {
    const Environment environment({{"SLURM_PROCID", "8"},
                                   {"SLURM_NTASKS", "11"},
                                   {"SLURM_LOCALID", "0"},
                                   {"SLURM_NODEID", "2"},
                                   {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
                                   {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"}});
    const WorldInfo world = read_world();
    EXPECT_EQ(world.rank, 8);
    EXPECT_EQ(world.node_rank, 2);
    EXPECT_EQ(world.local_world_size, 3);
    EXPECT_EQ(world.master_addr, "10.0.0.1");
  }
  const Environment environment({{"OMPI_COMM_WORLD_RANK", "3"},
                                 {"OMPI_COMM_WORLD_SIZE", "4"},
                                 {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                 {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                 {"MASTER_ADDR", "node-a"}});
  const WorldInfo world = read_world();
  EXPECT_EQ(world.rank, 3);
  EXPECT_EQ(world.local_rank, 1);
  EXPECT_EQ(world.local_world_size, 2);
}

TEST(ReadWorld, TakesMpirunsOwnBeforeThoseOfTheJobItRunsIn) {
  // In a job of Slurm's a process of mpirun's sees the variables of the step that started mpirun's daemon.
  const std::map<std::string, std::string> job = {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}};
  const auto with = [&](std::map<std::string, std::string> own) {
    own.insert(job.begin(), job.end());
    const Environment environment(own);
    return read_world();
  };
  const WorldInfo open = with({{"OMPI_COMM_WORLD_RANK", "3"},
                               {"OMPI_COMM_WORLD_SIZE", "4"},
                               {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                               {"PMIX_RANK", "3"}});
  EXPECT_EQ(open.rank, 3);
  EXPECT_EQ(open.hosts, Hosts::One);
  const WorldInfo mpich =
      with({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "4"}});
  EXPECT_EQ(mpich.rank, 2);
  EXPECT_EQ(mpich.world_size, 4);
  EXPECT_EQ(mpich.local_rank, 2);
  // srun --mpi=pmi2: only Slurm's know of nodes.
  const WorldInfo pmi2 = with({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"SLURM_LOCALID", "0"}});
  EXPECT_EQ(pmi2.world_size, 1);
}

TEST(ReadWorld, RanksOfMpirunOnSeveralHostsNeedToKnowWhereToMeet) {
  EXPECT_EQ(
      message_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}}),
      "environment variable MASTER_ADDR: missing, though 2 of 4 ranks are on this host; name rank 0's: "
      "mpirun -x MASTER_ADDR=HOST (Open MPI) or -env MASTER_ADDR HOST (MPICH)");
  EXPECT_EQ(
      message_of({{"PMIX_RANK", "1"}}),
      "environment variable PMIX_RANK: is set, and none that tells the number of ranks; start them with "
      "mpirun, srun or tandem launch, or set RANK, WORLD_SIZE and LOCAL_RANK");
}

TEST(ReadWorld, NamesTheVariableThatIsMissingOrWrong) {
  EXPECT_EQ(message_of({{"RANK", "1"}}),
            "environment variable WORLD_SIZE: missing, though RANK is set; a launcher sets both");
  EXPECT_EQ(message_of({{"WORLD_SIZE", "2"}}),
            "environment variable RANK: missing, though WORLD_SIZE is set; a launcher sets both");
  EXPECT_EQ(message_of({{"RANK", "x"}, {"WORLD_SIZE", "2"}}),
            "environment variable RANK: expected a whole number from 0, found 'x'");
  EXPECT_EQ(message_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}}),
            "environment variable RANK: expected less than 2 (WORLD_SIZE), found 2");
  EXPECT_EQ(message_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "99999"}}),
            "environment variable MASTER_PORT: expected a port from 1 to 65535, found 99999");
  EXPECT_EQ(message_of({{"TANDEM_TRANSPORT", "nccl"}}),
            "environment variable TANDEM_TRANSPORT: expected auto, shm or tcp, found 'nccl'");
  EXPECT_EQ(
      message_of({{"TANDEM_TRANSPORT", "gloo"}}),
      "environment variable TANDEM_TRANSPORT: gloo is no longer there; use tcp, which goes the same way");
  EXPECT_EQ(message_of({{"TANDEM_COMM_TIMEOUT_S", "0"}}),
            "environment variable TANDEM_COMM_TIMEOUT_S: expected a whole number from 1, found '0'");
}

TEST(ReadWorld, TellsWhetherRanksAreOnSeveralHosts) {
  const auto hosts = [](std::map<std::string, std::string> variables) {
    if (!variables.contains("SLURM_PROCID")) variables.insert({{"RANK", "0"}, {"WORLD_SIZE", "4"}});
    const Environment environment(variables);
    return read_world().hosts;
  };
  EXPECT_EQ(hosts({}), Hosts::One);
  EXPECT_EQ(hosts({{"MASTER_ADDR", "localhost"}, {"LOCAL_WORLD_SIZE", "2"}}), Hosts::One);
  EXPECT_EQ(hosts({{"MASTER_ADDR", "node-a"}}), Hosts::Unknown);
  EXPECT_EQ(hosts({{"MASTER_ADDR", "node-a"}, {"LOCAL_WORLD_SIZE", "4"}}), Hosts::One);
  EXPECT_EQ(hosts({{"MASTER_ADDR", "node-a"}, {"LOCAL_WORLD_SIZE", "2"}}), Hosts::Several);
  const auto slurm = [&](const char* tasks) {
    return hosts({{"SLURM_PROCID", "0"},
                  {"SLURM_NTASKS", "4"},
                  {"SLURM_STEP_TASKS_PER_NODE", tasks},
                  {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"}});
  };
  EXPECT_EQ(slurm("4"), Hosts::One);
  EXPECT_EQ(slurm("2(x2)"), Hosts::Several);
}

TEST(SecretOfAWorld, IsNeededOnSeveralHosts) {
  WorldInfo world;
  world.world_size = 8;
  world.local_world_size = 4;
  world.master_addr = "node-a";
  world.hosts = Hosts::Several;
  const Environment environment({});
  try {
    secret_of(world);
    FAIL() << "not refused";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.what(),
              std::string(
                  "environment variable TANDEM_SECRET_FILE: missing, though the 8 ranks are on several hosts "
                  "(here 4); name a file that is the same on all of them and private (mode 600), or let in "
                  "whoever can reach node-a:29500 with --insecure"));
  }
  setenv("TANDEM_INSECURE", "1", 1);
  EXPECT_TRUE(secret_of(world).is_none());
  setenv("TANDEM_SECRET", "000102030405060708090a0b0c0d0e0f", 1);
  EXPECT_FALSE(secret_of(world).is_none());
}

TEST(FromEnvironment, Overrides) {
  const Environment environment({{"TANDEM_TRANSPORT", "tcp"}, {"TANDEM_COMM_TIMEOUT_S", "7"}});
  const ConnectOptions options = from_environment({});
  EXPECT_EQ(options.transport, Transport::Tcp);
  EXPECT_EQ(options.timeout, std::chrono::seconds(7));
}

TEST(ReadWorld, LeavesTorchrunsAgentItsOwnPort) {
  const Environment environment({{"RANK", "0"},
                                 {"WORLD_SIZE", "2"},
                                 {"MASTER_ADDR", "127.0.0.1"},
                                 {"MASTER_PORT", "29500"},
                                 {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  EXPECT_EQ(29501, read_world().master_port);
}

}  // namespace
}  // namespace tandem
