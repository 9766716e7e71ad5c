// Functions of libibverbs that need no device.
#include <gtest/gtest.h>
#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>

extern "C" {
const char* ibv_get_sysfs_path();
int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, std::size_t size);
void ibv_copy_qp_attr_from_kern(ibv_qp_attr* dst, ib_uverbs_qp_attr* src);
void ibv_copy_path_rec_from_kern(ibv_sa_path_rec* dst, ib_user_path_rec* src);
void ibv_copy_path_rec_to_kern(ib_user_path_rec* dst, ibv_sa_path_rec* src);
}

namespace tensorwire::ibverbs::test {
namespace {

TEST(Names, EveryStatusHasItsOwn) {
  std::set<std::string> names;
  for (int status = IBV_WC_SUCCESS; status <= IBV_WC_TM_RNDV_INCOMPLETE; ++status) {
    names.insert(ibv_wc_status_str(static_cast<ibv_wc_status>(status)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(IBV_WC_TM_RNDV_INCOMPLETE) + 1);
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR), "transport retry counter exceeded");
  EXPECT_STREQ(ibv_wc_status_str(std::bit_cast<ibv_wc_status>(1000)), "unknown");
  EXPECT_STREQ(ibv_wc_status_str(std::bit_cast<ibv_wc_status>(-1)), "unknown");
}

TEST(Names, EventsNodesAndPorts) {
  EXPECT_STREQ(ibv_event_type_str(IBV_EVENT_GID_CHANGE), "GID table change");
  EXPECT_STREQ(ibv_event_type_str(std::bit_cast<ibv_event_type>(99)), "unknown");
  EXPECT_STREQ(ibv_node_type_str(IBV_NODE_CA), "InfiniBand channel adapter");
  EXPECT_STREQ(ibv_node_type_str(IBV_NODE_UNKNOWN), "unknown");
  EXPECT_STREQ(ibv_port_state_str(IBV_PORT_ACTIVE), "active");
  EXPECT_STREQ(ibv_port_state_str(std::bit_cast<ibv_port_state>(99)), "unknown");
}

TEST(Rates, RoundTrip) {
  for (int rate = IBV_RATE_2_5_GBPS; rate <= IBV_RATE_1200_GBPS; ++rate) {
    const auto code = static_cast<ibv_rate>(rate);
    EXPECT_GT(ibv_rate_to_mult(code), 0) << rate;
    EXPECT_EQ(mult_to_ibv_rate(ibv_rate_to_mult(code)), code) << rate;
    EXPECT_EQ(mbps_to_ibv_rate(ibv_rate_to_mbps(code)), code) << rate;
  }
  EXPECT_EQ(ibv_rate_to_mbps(IBV_RATE_100_GBPS), 103125);
  EXPECT_EQ(ibv_rate_to_mult(IBV_RATE_MAX), -1);
  EXPECT_EQ(ibv_rate_to_mbps(std::bit_cast<ibv_rate>(1)), -1);
  EXPECT_EQ(mult_to_ibv_rate(7), IBV_RATE_MAX);
  EXPECT_EQ(mbps_to_ibv_rate(0), IBV_RATE_MAX);
}

TEST(Fork, IsNoConcernOfThisHca) {
  EXPECT_EQ(ibv_fork_init(), 0);
  EXPECT_EQ(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
}

TEST(Sysfs, ReadsOneLine) {
  const std::string folder = ::testing::TempDir();
  const std::string name = "tensorwire_sysfs_test";
  std::FILE* file = std::fopen((folder + "/" + name).c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs("RoCE v2\n", file);
  std::fclose(file);
  std::array<char, 32> text{};
  EXPECT_EQ(ibv_read_sysfs_file(folder.c_str(), name.c_str(), text.data(), text.size()), 7);
  EXPECT_STREQ(text.data(), "RoCE v2");
  std::array<char, 5> narrow{};
  EXPECT_EQ(ibv_read_sysfs_file(folder.c_str(), name.c_str(), narrow.data(), narrow.size()), 4);
  EXPECT_STREQ(narrow.data(), "RoCE");
  errno = 0;
  EXPECT_EQ(ibv_read_sysfs_file(folder.c_str(), "no such file", text.data(), text.size()), -1);
  EXPECT_EQ(errno, ENOENT);
  std::remove((folder + "/" + name).c_str());
  EXPECT_STREQ(ibv_get_sysfs_path(), "/sys");
}

TEST(KernelStructs, QueuePairAttributes) {
  ib_uverbs_qp_attr kernel{};
  kernel.qp_state = IBV_QPS_RTR;
  kernel.path_mtu = IBV_MTU_2048;
  kernel.dest_qp_num = 0x123456;
  kernel.max_send_wr = 9;
  kernel.ah_attr.is_global = 1;
  kernel.ah_attr.grh.dgid[15] = 0x42;
  kernel.ah_attr.grh.traffic_class = 104;
  kernel.rnr_retry = 7;
  ibv_qp_attr verbs;
  std::memset(&verbs, 0xaa, sizeof verbs);
  ibv_copy_qp_attr_from_kern(&verbs, &kernel);
  EXPECT_EQ(verbs.qp_state, IBV_QPS_RTR);
  EXPECT_EQ(verbs.path_mtu, IBV_MTU_2048);
  EXPECT_EQ(verbs.dest_qp_num, 0x123456U);
  EXPECT_EQ(verbs.cap.max_send_wr, 9U);
  EXPECT_EQ(verbs.ah_attr.is_global, 1);
  EXPECT_EQ(verbs.ah_attr.grh.dgid.raw[15], 0x42);
  EXPECT_EQ(verbs.ah_attr.grh.traffic_class, 104);
  EXPECT_EQ(verbs.rnr_retry, 7);
  EXPECT_EQ(verbs.rate_limit, 0U);
}

TEST(KernelStructs, PathRecordRoundTrip) {
  ibv_sa_path_rec record{};
  record.dgid.raw[3] = 3;
  record.sgid.raw[4] = 4;
  record.flow_label = 0x55;
  record.hop_limit = 64;
  record.traffic_class = 104;
  record.mtu = IBV_MTU_4096;
  record.rate = IBV_RATE_100_GBPS;
  record.packet_life_time = 16;
  record.reversible = 1;
  ib_user_path_rec kernel;
  std::memset(&kernel, 0xaa, sizeof kernel);
  ibv_copy_path_rec_to_kern(&kernel, &record);
  ibv_sa_path_rec back;
  std::memset(&back, 0xaa, sizeof back);
  ibv_copy_path_rec_from_kern(&back, &kernel);
  EXPECT_EQ(std::memcmp(back.dgid.raw, record.dgid.raw, 16), 0);
  EXPECT_EQ(std::memcmp(back.sgid.raw, record.sgid.raw, 16), 0);
  EXPECT_EQ(back.flow_label, record.flow_label);
  EXPECT_EQ(back.hop_limit, record.hop_limit);
  EXPECT_EQ(back.traffic_class, record.traffic_class);
  EXPECT_EQ(back.mtu, record.mtu);
  EXPECT_EQ(back.rate, record.rate);
  EXPECT_EQ(back.packet_life_time, record.packet_life_time);
  EXPECT_EQ(back.reversible, record.reversible);
}

}  // namespace
}  // namespace tensorwire::ibverbs::test
