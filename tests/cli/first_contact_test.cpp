// What leaves a cluster in an archive: no secrets, no hardware addresses, other names; and how parts run as processes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "cli/first_contact/child.hpp"
#include "cli/first_contact/gpu_step.hpp"
#include "cli/first_contact/kit.hpp"
#include "cli/first_contact/scrub.hpp"
#include "cli/mesh/launch.hpp"

namespace tensorwire::cli {
namespace {

namespace fs = std::filesystem;

TEST(Scrub, SecretsAreKnownByTheNamesOfTheirVariables) {
  const bootstrap::Environment environment{
      {"TENSORWIRE_SECRET", "hunter22"}, {"HF_TOKEN", "hf_abcdef"}, {"AWS_SECRET_ACCESS_KEY", "wJalr"},
      {"db_password", "hunter22-too"},   {"NCCL_DEBUG", "INFO"},    {"SHORT_TOKEN", "abc"}};
  const auto secrets = secrets_in(environment);
  EXPECT_EQ((std::vector<std::string>{"hunter22-too", "hf_abcdef", "hunter22", "wJalr"}), secrets);
  EXPECT_EQ("a (removed) b (removed) c (removed)INFO",
            without_secrets("a hunter22 b hunter22-too c hf_abcdefINFO", secrets));
}

TEST(Scrub, ASecretFileIsReadForItsFirstLine) {
  const std::string path = ::testing::TempDir() + "/scrub-secret";
  std::ofstream{path} << "from the file\nnot this\n";
  EXPECT_EQ((std::vector<std::string>{"from the file"}), secrets_in({{"TENSORWIRE_SECRET_FILE", path}}));
}

TEST(Scrub, HardwareAddressesGoAndOthersStay) {
  EXPECT_EQ("lladdr (hardware address) dev", without_hardware_addresses("lladdr 52:54:00:77:00:02 dev"));
  EXPECT_EQ("(hardware address)", without_hardware_addresses("0c-42-a1-03-00-01"));
  EXPECT_EQ("ib (hardware address)!",
            without_hardware_addresses("ib 80:00:02:08:fe:80:00:00:00:00:00:00:0c:42:a1:03:00:01:00:02!"));
  for (const std::string& kept :
       {std::string{"fe80:0000:0000:0000:0e42:a1ff:fe03:0001"}, std::string{"2001:db8::1"}, std::string{"20:38:12"},
        std::string{"0000:3c:00.0"}, std::string{"10.91.1.2"}, std::string{"2026-11-30T20:38:12Z"}}) {
    EXPECT_EQ(kept, without_hardware_addresses(kept));
  }
}

TEST(Scrub, HostsHaveOtherNamesAsWholeWords) {
  const Replacements names =
      names_for({"gpu01.cluster.example", "gpu02.cluster.example", "gpu02.cluster.example", "gpu1"});
  EXPECT_EQ("host0 host0/x \"host1\" host2: gpu011 my-gpu1 gpu1_a",
            with_other_names("gpu01.cluster.example gpu01/x \"gpu02\" gpu1: gpu011 my-gpu1 gpu1_a", names));
}

TEST(Child, SaysHowItEnded) {
  ChildPlan plan;
  plan.words = {"sh", "-c", "echo out; echo err >&2"};
  ChildResult result = run_child(plan, never_stops());
  EXPECT_TRUE(result.ok()) << result.why();
  EXPECT_EQ("out\n", result.out);
  EXPECT_EQ("err\n", result.err);

  plan.words = {"sh", "-c", "echo first; echo the reason >&2; exit 7"};
  EXPECT_EQ("sh ended with status 7: the reason", run_child(plan, never_stops()).why());

  plan.words = {"sh", "-c", "kill -11 $$"};
  EXPECT_NE(std::string::npos, run_child(plan, never_stops()).why().find("signal 11"));

  plan.words = {"no-such-program-here"};
  EXPECT_NE(std::string::npos, run_child(plan, never_stops()).why().find("not installed"));
}

TEST(Child, IsEndedAtItsBoundAndWithAllItStarted) {
  ChildPlan plan;
  plan.words = {"sh", "-c", "sleep 600 & sleep 600; wait"};
  plan.bound = 300 * kMillisecond;
  const Ps started = monotonic_now();
  EXPECT_EQ("sh: not over within 300ms", run_child(plan, never_stops()).why());
  EXPECT_LT(monotonic_now() - started, 5 * kSecond);
  const volatile std::sig_atomic_t stopped = 1;
  plan.bound = 60 * kSecond;
  EXPECT_EQ("sh: interrupted", run_child(plan, stopped).why());
}

TEST(Child, ItsOutputMayBeLargerThanAPipe) {
  ChildPlan plan;
  plan.words = {"sh", "-c", "head -c 1000000 /dev/zero"};
  EXPECT_EQ(1'000'000U, run_child(plan, never_stops()).out.size());
}

class KitTest : public ::testing::Test {
 protected:
  /// Tests run beside each other, as processes.
  KitTest()
      : name_("kit-test-" + std::to_string(::getpid())),
        archive_(fs::path{::testing::TempDir()} / (name_ + ".tar.gz")) {
    clean();
  }
  ~KitTest() override { clean(); }

  void clean() const {
    fs::remove(archive_);
    fs::remove_all(folder());
  }
  [[nodiscard]] fs::path folder() const { return fs::path{::testing::TempDir()} / name_; }
  [[nodiscard]] std::string unpacked(const std::string& name) const {
    ChildPlan plan;
    plan.words = {"tar", "-xzOf", archive_.string(), name_ + "/" + name};
    return run_child(plan, never_stops()).out;
  }

  std::string name_;
  fs::path archive_;
};

TEST_F(KitTest, PacksWhatWasAddedUnderOtherNames) {
  {
    Kit kit{archive_.string()};
    kit.use_pseudonyms(names_for({"gpu01"}), "key");
    kit.add("a.txt", "gpu01 at 10.1.2.3 with 52:54:00:77:00:02");
    kit.add("hosts/host0/b.txt", "10.1.2.3 stays", Kit::Addresses::kDone);
    kit.pack();
  }
  EXPECT_FALSE(fs::exists(folder()));
  const std::string text = unpacked("a.txt");
  EXPECT_EQ(0U, text.find("host0 at ")) << text;
  EXPECT_EQ(std::string::npos, text.find("10.1.2.3")) << text;
  EXPECT_NE(std::string::npos, text.find("(hardware address)")) << text;
  EXPECT_EQ("10.1.2.3 stays", unpacked("hosts/host0/b.txt"));
}

TEST_F(KitTest, WritesOverNothing) {
  std::ofstream{archive_} << "precious";
  EXPECT_THROW(Kit{archive_.string()}, Error);
  std::ostringstream text;
  text << std::ifstream{archive_}.rdbuf();
  EXPECT_EQ("precious", text.str());
  EXPECT_THROW(Kit{"kit.zip"}, Error);
  EXPECT_THROW(Kit{"/no/such/folder/kit.tar.gz"}, Error);
}

TEST(GpudirectPairs, TheLaterLineOfAPairCounts) {
  std::string no_gpu;
  const auto pairs = gpudirect_pairs(
      "{\"gpu\":0,\"device\":\"soft1\",\"path\":\"dmabuf\"}\nnot JSON\n"
      "{\"gpu\":1,\"device\":\"soft1\",\"path\":\"dmabuf\"}\n"
      "{\"gpu\":0,\"device\":\"soft1\",\"path\":\"dmabuf\",\"write\":{\"right\":true}}\n",
      no_gpu);
  ASSERT_EQ(2U, pairs.size());
  EXPECT_TRUE(pairs[0]["write"]["right"]);
  EXPECT_EQ(1, pairs[1]["gpu"]);
  EXPECT_EQ("", no_gpu);
  EXPECT_EQ(0U, gpudirect_pairs("{\"no_gpu\":\"no driver\"}\n", no_gpu).size());
  EXPECT_EQ("no driver", no_gpu);
}

TEST(LinesToStart, AreTheSameCommandWithARank) {
  const auto lines =
      lines_to_start({"doctor", "mesh", "--hosts", "a,b,c", "--json=out file", "--seconds", "0.5", "--json", "x"},
                     {"a", "b", "c"}, 29500);
  ASSERT_EQ(2U, lines.size());
  EXPECT_EQ("b$ tensorwire doctor mesh --seconds 0.5 --rank 1 --world-size 3 --master-addr a --master-port 29500",
            lines[0]);
  EXPECT_EQ("c$ tensorwire 'it'\\''s' --rank 2 --world-size 3 --master-addr a --master-port 7",
            lines_to_start({"it's"}, {"a", "b", "c"}, 7)[1]);
}

}  // namespace
}  // namespace tensorwire::cli
