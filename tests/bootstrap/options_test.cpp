#include "bootstrap/options.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "bootstrap/slurm.hpp"

namespace tensorwire::bootstrap {
namespace {

const Environment kTorchrun{
    {"RANK", "5"},           {"WORLD_SIZE", "8"},      {"LOCAL_RANK", "1"},           {"LOCAL_WORLD_SIZE", "4"},
    {"MASTER_ADDR", "gpu3"}, {"MASTER_PORT", "29511"}, {"TORCHELASTIC_RUN_ID", "abc"}};

std::string error_of(const Environment& environment, const GroupFlags& flags = {}) {
  try {
    (void)detect_options(environment, flags);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Environment with(Environment environment, const std::string& name, const std::string& value) {
  environment[name] = value;
  return environment;
}

Environment without(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Options, Torchrun) {
  const GroupOptions options = detect_options(kTorchrun);
  EXPECT_EQ(options.rank, 5);
  EXPECT_EQ(options.world_size, 8);
  EXPECT_EQ(options.local_rank, 1);
  EXPECT_EQ(options.local_world_size, 4);
  EXPECT_EQ(options.master_address, "gpu3");
  EXPECT_EQ(options.master_port, 29511);
  EXPECT_EQ(options.launcher, "torchrun");
  EXPECT_EQ(options.job, "abc");
  EXPECT_TRUE(under_launcher(kTorchrun));
}

TEST(Options, FlagsWinAndSufficeAlone) {
  GroupFlags flags;
  flags.rank = 2;
  flags.master_port = 4000;
  const GroupOptions over = detect_options(kTorchrun, flags);
  EXPECT_EQ(over.rank, 2);
  EXPECT_EQ(over.world_size, 8);
  EXPECT_EQ(over.master_port, 4000);

  flags.world_size = 3;
  flags.master_address = "10.0.0.1";
  const GroupOptions alone = detect_options({}, flags);
  EXPECT_EQ(alone.launcher, "flags");
  EXPECT_EQ(alone.master_address, "10.0.0.1");
  EXPECT_FALSE(under_launcher({}));
}

TEST(Options, OpenMpiOnOneHostNeedsNoAddress) {
  const Environment environment{{"OMPI_COMM_WORLD_RANK", "1"},
                                {"OMPI_COMM_WORLD_SIZE", "2"},
                                {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                {"PMIX_NAMESPACE", "prterun-1@1"}};
  const GroupOptions options = detect_options(environment);
  EXPECT_EQ(options.launcher, "OpenMPI");
  EXPECT_EQ(options.rank, 1);
  EXPECT_EQ(options.master_address, "127.0.0.1");
  EXPECT_EQ(options.job, "prterun-1@1");
}

TEST(Options, OpenMpiOnSeveralHostsMustBeToldTheAddress) {
  const Environment environment{{"OMPI_COMM_WORLD_RANK", "1"},
                                {"OMPI_COMM_WORLD_SIZE", "4"},
                                {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  EXPECT_HAS(error_of(environment), "mpirun -x MASTER_ADDR");
  EXPECT_EQ(detect_options(with(environment, "MASTER_ADDR", "n1")).master_address, "n1");
}

TEST(Options, Pmi) {
  const GroupOptions options =
      detect_options({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}});
  EXPECT_EQ(options.launcher, "PMI");
  EXPECT_EQ(options.world_size, 2);
}

TEST(Options, SlurmStep) {
  const Environment environment{
      {"SLURM_PROCID", "6"},  {"SLURM_STEP_NUM_TASKS", "7"},        {"SLURM_LOCALID", "2"},
      {"SLURM_NODEID", "1"},  {"SLURM_STEP_TASKS_PER_NODE", "4,3"}, {"SLURM_STEP_NODELIST", "gpu[03-04]"},
      {"SLURM_JOB_ID", "777"}};
  const GroupOptions options = detect_options(environment);
  EXPECT_EQ(options.launcher, "Slurm");
  EXPECT_EQ(options.rank, 6);
  EXPECT_EQ(options.local_rank, 2);
  EXPECT_EQ(options.local_world_size, 3);
  EXPECT_EQ(options.master_address, "gpu03");
  EXPECT_EQ(options.job, "777");
}

TEST(Options, ABatchScriptIsNoRank) {
  EXPECT_FALSE(under_launcher({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}, {"SLURM_JOB_ID", "1"}}));
}

TEST(Options, MissingAndBadValuesAreNamed) {
  EXPECT_HAS(error_of({}), "rank is not known");
  EXPECT_HAS(error_of(without(kTorchrun, "WORLD_SIZE")), "WORLD_SIZE");
  EXPECT_HAS(error_of(without(kTorchrun, "MASTER_ADDR")), "MASTER_ADDR");
  EXPECT_HAS(error_of(with(kTorchrun, "RANK", "two")), "RANK=two");
  EXPECT_HAS(error_of(with(kTorchrun, "RANK", "8")), "rank 8 is outside of a world of 8");
  EXPECT_HAS(error_of(with(kTorchrun, "RANK", "-1")), "rank -1");
  EXPECT_HAS(error_of(with(kTorchrun, "WORLD_SIZE", "0")), "world size of 0");
  EXPECT_HAS(error_of(with(kTorchrun, "LOCAL_RANK", "4")), "local rank 4");
  EXPECT_HAS(error_of(with(kTorchrun, "LOCAL_WORLD_SIZE", "9")), "9 ranks on this host");
  EXPECT_HAS(error_of(with(kTorchrun, "MASTER_PORT", "70000")), "MASTER_PORT=70000");
  EXPECT_HAS(error_of(with(kTorchrun, "MASTER_PORT", "99999999999")), "MASTER_PORT=99999999999");
  EXPECT_HAS(error_of(with(kTorchrun, "TENSORWIRE_BOOTSTRAP_TIMEOUT", "5 parsecs")), "TENSORWIRE_BOOTSTRAP_TIMEOUT");
}

TEST(Options, TimeoutAndSecret) {
  const Environment environment =
      with(with(kTorchrun, "TENSORWIRE_BOOTSTRAP_TIMEOUT", "1500ms"), "TENSORWIRE_SECRET", "swordfish");
  const GroupOptions options = detect_options(environment);
  EXPECT_EQ(options.timeout, 1500 * kMillisecond);
  EXPECT_EQ(options.secret, "swordfish");
}

TEST(Options, SecretFile) {
  const std::string path = ::testing::TempDir() + "/secret-" + std::to_string(::getpid());
  std::ofstream{path} << "from the file\r\nsecond line\n";
  EXPECT_EQ(detect_options(with(kTorchrun, "TENSORWIRE_SECRET_FILE", path)).secret, "from the file");
  std::ofstream{path, std::ios::trunc} << "\n";
  EXPECT_HAS(error_of(with(kTorchrun, "TENSORWIRE_SECRET_FILE", path)), path);
  const std::string both =
      error_of(with(with(kTorchrun, "TENSORWIRE_SECRET_FILE", path), "TENSORWIRE_SECRET", "swordfish"));
  EXPECT_HAS(both, "both");
  EXPECT_EQ(both.find("swordfish"), std::string::npos);
  std::filesystem::remove(path);
  EXPECT_HAS(error_of(with(kTorchrun, "TENSORWIRE_SECRET_FILE", path)), path);
}

TEST(Slurm, FirstHost) {
  EXPECT_EQ(first_slurm_host("gpu7"), "gpu7");
  EXPECT_EQ(first_slurm_host("gpu7,gpu9"), "gpu7");
  EXPECT_EQ(first_slurm_host("gpu[003-007,011],login"), "gpu003");
  EXPECT_EQ(first_slurm_host("gpu[12,14]"), "gpu12");
  EXPECT_EQ(first_slurm_host("rack[1-2]-node[3-4]"), "rack1-node3");
  EXPECT_EQ(first_slurm_host("r[1-2]-x,z"), "r1-x");
  EXPECT_EQ(first_slurm_host(""), std::nullopt);
  EXPECT_EQ(first_slurm_host("gpu["), std::nullopt);
  EXPECT_EQ(first_slurm_host("gpu[]"), std::nullopt);
  EXPECT_EQ(first_slurm_host("gpu[3"), std::nullopt);
}

TEST(Slurm, TasksPerNode) {
  EXPECT_EQ(slurm_tasks_per_node("4"), (std::vector{4}));
  EXPECT_EQ(slurm_tasks_per_node("4(x2),3"), (std::vector{4, 4, 3}));
  for (const char* bad : {"", "x", "4(", "4(2)", "4(x2", "4,", "0", "4 3"}) {
    EXPECT_EQ(slurm_tasks_per_node(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace tensorwire::bootstrap
