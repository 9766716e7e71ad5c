// One real engine with a region that windows may be bound to: what the tests of memory windows share.
#pragma once

#include <gtest/gtest.h>

#include <array>

#include "lab.hpp"

namespace tensorwire::transport::test {

inline constexpr std::uint32_t kBindable = kAccessLocalWrite | kAccessWindowBind;

class WindowLab : public ::testing::Test {
 protected:
  MemoryTable& table() { return lab.host.engine.memory(); }
  std::uint32_t window(WindowType type = WindowType::k2) { return table().add_window(lab.host.pd, type); }
  [[nodiscard]] WindowBinding binding(std::size_t offset = 0, std::size_t length = 1024,
                                      std::uint32_t access = kAccessRemote) const {
    return {region.address(offset), length, region.key, access};
  }

  int bind(std::uint64_t wr_id, std::uint32_t key, const WindowBinding& what, bool fence = false) {
    SendWr wr;
    wr.wr_id = wr_id;
    wr.opcode = WrOpcode::kBindWindow;
    wr.rkey = key;
    wr.binding = &what;
    wr.fence = fence;
    return lab.end.send(wr, lab.now);
  }
  int invalidate(std::uint64_t wr_id, std::uint32_t key, bool fence = false) {
    SendWr wr;
    wr.wr_id = wr_id;
    wr.opcode = WrOpcode::kLocalInvalidate;
    wr.rkey = key;
    wr.fence = fence;
    return lab.end.send(wr, lab.now);
  }
  /// Bound at once, without a work request.
  std::uint32_t bound(const WindowBinding& what, WindowType type = WindowType::k2) {
    const std::uint32_t key = window(type);
    EXPECT_TRUE(table().bind(key, what, lab.host.pd, Lab::kQpn));
    return key;
  }
  int write(std::uint64_t wr_id) {
    const Sge sge = region.sge(0, 64);
    return lab.end.send(write_wr(wr_id, {&sge, 1}, 0x1000, 1), lab.now);
  }
  bool is_bound(std::uint32_t key) { return table().can_invalidate(key, lab.host.pd, Lab::kQpn); }

  void expect_completion(std::uint64_t wr_id, WcOpcode opcode, WcStatus status = WcStatus::kSuccess) {
    std::array<Completion, 1> one;
    ASSERT_EQ(lab.host.cq.poll(one), 1U);
    EXPECT_EQ(one[0].wr_id, wr_id);
    EXPECT_EQ(one[0].opcode, opcode);
    EXPECT_EQ(one[0].status, status);
  }
  void expect_no_completion() { EXPECT_EQ(lab.host.cq.size(), 0U); }

  wire::Headers send_invalidate(wire::Opcode opcode, std::uint32_t n, std::uint32_t key) const {
    wire::Headers h = lab.request(opcode, n);
    h.invalidate_rkey = key;
    return h;
  }

  Lab lab;
  Buffer region = lab.host.buffer(4096, kBindable);
};

}  // namespace tensorwire::transport::test
