// What the HCA has not answers with the right error and touches nothing.
#include <dlfcn.h>

#include "ibverbs/verbs_fixture.hpp"

namespace tensorwire::ibverbs::test {
namespace {

class UnsupportedTest : public VerbsTest {
 protected:
  /// The call returned null; what does errno say?
  template <typename T>
  void expect_refused(T* result, const char* what) {
    EXPECT_EQ(result, nullptr) << what;
    EXPECT_EQ(errno, EOPNOTSUPP) << what;
    errno = 0;
  }
};

TEST_F(UnsupportedTest, PointersAreNullWithErrno) {
  ibv_td_init_attr td{};
  ibv_parent_domain_init_attr domain{};
  ibv_alloc_dm_attr dm{};
  ibv_counters_init_attr counters{};
  ibv_xrcd_init_attr xrcd{};
  ibv_qp_open_attr open{};
  ibv_wq_init_attr wq{};
  errno = 0;
  expect_refused(ibv_reg_dmabuf_mr(pd(), 0, 4096, 0, -1, kAllAccess), "dmabuf");
  expect_refused(ibv_alloc_td(context(), &td), "td");
  expect_refused(ibv_alloc_parent_domain(context(), &domain), "parent domain");
  expect_refused(ibv_alloc_dm(context(), &dm), "dm");
  expect_refused(ibv_alloc_null_mr(pd()), "null mr");
  expect_refused(ibv_create_counters(context(), &counters), "counters");
  expect_refused(ibv_open_xrcd(context(), &xrcd), "xrcd");
  expect_refused(ibv_open_qp(context(), &open), "open qp");
  expect_refused(ibv_create_wq(context(), &wq), "wq");
  expect_refused(ibv_import_device(0), "import device");
  expect_refused(ibv_import_pd(context(), 0), "import pd");
  expect_refused(ibv_import_mr(pd(), 0), "import mr");
  expect_refused(ibv_import_dm(context(), 0), "import dm");
}

TEST_F(UnsupportedTest, StatusesAreTheErrorItself) {
  const Owned<ibv_cq> cq = make_cq();
  ibv_qp_init_attr attributes = rc_attributes(cq.get(), cq.get());
  const Owned<ibv_qp> qp = owned(ibv_create_qp(pd(), &attributes), ibv_destroy_qp);
  ibv_gid gid{};
  ibv_ece ece{};
  ibv_modify_cq_attr moderate{};
  ibv_values_ex values{};
  ibv_qp_rate_limit_attr rate{};
  EXPECT_EQ(ibv_resize_cq(cq.get(), 100), EOPNOTSUPP);
  EXPECT_EQ(ibv_modify_cq(cq.get(), &moderate), EOPNOTSUPP);
  EXPECT_EQ(ibv_attach_mcast(qp.get(), &gid, 0), EOPNOTSUPP);
  EXPECT_EQ(ibv_detach_mcast(qp.get(), &gid, 0), EOPNOTSUPP);
  EXPECT_EQ(ibv_query_ece(qp.get(), &ece), EOPNOTSUPP);
  EXPECT_EQ(ibv_set_ece(qp.get(), &ece), EOPNOTSUPP);
  EXPECT_EQ(ibv_query_rt_values_ex(context(), &values), EOPNOTSUPP);
  EXPECT_EQ(ibv_modify_qp_rate_limit(qp.get(), &rate), EOPNOTSUPP);
  EXPECT_EQ(ibv_advise_mr(pd(), IBV_ADVISE_MR_ADVICE_PREFETCH, 0, nullptr, 0), EOPNOTSUPP);
  EXPECT_EQ(ibv_query_qp_data_in_order(qp.get(), IBV_WR_RDMA_WRITE, 0), 0);
}

TEST_F(UnsupportedTest, ReRegistrationLeavesTheRegionValid) {
  std::vector<std::uint8_t> bytes(4096);
  const Owned<ibv_mr> mr = register_bytes(bytes);
  EXPECT_EQ(ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
}

TEST_F(UnsupportedTest, VerbsOfNewerReleasesAreThere) {
  for (const auto& [name, node] : {std::pair{"ibv_alloc_dmah", "IBVERBS_1.15"},
                                   {"ibv_alloc_buf", "IBVERBS_1.17"},
                                   {"ibv_create_comp_cntr", "IBVERBS_1.18"}}) {
    const auto verb = reinterpret_cast<void* (*)(ibv_context*, void*)>(dlvsym(RTLD_DEFAULT, name, node));
    ASSERT_NE(verb, nullptr) << name;
    errno = 0;
    expect_refused(verb(context(), nullptr), name);
  }
  const auto speed = reinterpret_cast<int (*)(ibv_context*, std::uint8_t, std::uint64_t*)>(
      dlvsym(RTLD_DEFAULT, "ibv_query_port_speed", "IBVERBS_1.16"));
  ASSERT_NE(speed, nullptr);
  std::uint64_t value = 0;
  EXPECT_EQ(speed(context(), 1, &value), EOPNOTSUPP);
}

TEST_F(UnsupportedTest, DriversMayRegisterAndGetNothing) {
  for (const char* number : {"34", "57", "59", "64", "65"}) {
    const std::string node = std::string("IBVERBS_PRIVATE_") + number;
    const auto enlist = reinterpret_cast<void (*)(const void*)>(
        dlvsym(RTLD_DEFAULT, (std::string("verbs_register_driver_") + number).c_str(), node.c_str()));
    ASSERT_NE(enlist, nullptr) << number;
    enlist(nullptr);
    const auto command = reinterpret_cast<int (*)(void*)>(dlvsym(RTLD_DEFAULT, "ibv_cmd_alloc_pd", node.c_str()));
    ASSERT_NE(command, nullptr) << number;
    EXPECT_EQ(command(nullptr), EOPNOTSUPP);
    EXPECT_NE(dlvsym(RTLD_DEFAULT, "verbs_allow_disassociate_destroy", node.c_str()), nullptr);
  }
}

}  // namespace
}  // namespace tensorwire::ibverbs::test
