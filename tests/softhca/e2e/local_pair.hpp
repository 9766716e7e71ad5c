// Two processes with an Hca each on the same-host link: the parent is the test, the child an echo.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "endpoint.hpp"
#include "softhca/child_process.hpp"

namespace tensorwire::softhca::testing {

using namespace std::chrono_literals;
using transport::WcOpcode;
using transport::WcStatus;

inline constexpr std::uint32_t kMemoryBytes = 1 << 20;

/// What parent and child tell one another, in memory that both share.
struct Desk {
  Address parent, child;
  std::atomic<int> parent_there{0}, child_there{0}, child_error{0};
};

class SharedDesk {
 public:
  SharedDesk() {
    void* const at = ::mmap(nullptr, sizeof(Desk), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    desk_ = new (at) Desk;
  }
  SharedDesk(const SharedDesk&) = delete;
  SharedDesk& operator=(const SharedDesk&) = delete;
  ~SharedDesk() { ::munmap(desk_, sizeof(Desk)); }
  Desk* operator->() const { return desk_; }

 private:
  Desk* desk_;
};

inline void wait_for(const std::atomic<int>& flag) {
  for (int i = 0; i < 5000 && flag.load() == 0; ++i) std::this_thread::sleep_for(1ms);
}

/// An acknowledge timeout of 2 to 8 s: on a busy machine, too, what comes only after a retransmission fails the test.
inline Endpoint::Settings patient() {
  Endpoint::Settings settings;
  settings.timeout = 19;
  return settings;
}

/// The child's life: every message that arrives at offset x is written back to the parent's offset x, with the same
/// immediate. Ends when the parent kills it.
inline int echo(SharedDesk& desk, std::uint32_t address, Endpoint::Settings settings) {
  try {
    Endpoint self(open_at(loopback_device(), address, {}), settings);
    desk->child = self.address();
    desk->child_there = 1;
    wait_for(desk->parent_there);
    if (self.connect(desk->parent) != 0 || self.post_receives(settings.depth) != 0) return 2;
    desk->child_there = 2;
    for (;;) {
      const auto completion = self.next(30 * kSecond);
      if (!completion || completion->status != WcStatus::kSuccess) return 3;
      if (completion->opcode != WcOpcode::kRecvWithImm) continue;
      if (self.post_receives(1) != 0) return 4;
      if (self.write_imm(desk->parent, completion->immediate, completion->byte_len, completion->immediate) != 0) {
        return 5;
      }
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "child: %s\n", e.what());
    return 1;
  }
}

/// A parent endpoint connected to an echoing child. The child is made before the parent has threads.
class LocalLinkTest : public ::testing::Test {
 protected:
  void start(Endpoint::Settings child_settings = patient(), Endpoint::Settings parent_settings = patient()) {
    const std::uint32_t child_address = test_address(1);
    child_.emplace([&] { return echo(desk_, child_address, child_settings); });
    meet_child(parent_settings);
  }

  /// The rest of start(): the child has begun.
  void meet_child(Endpoint::Settings parent_settings) {
    wait_for(desk_->child_there);
    parent_.emplace(open_at(loopback_device(), test_address(0), {}), parent_settings);
    desk_->parent = parent_->address();
    desk_->parent_there = 1;
    ASSERT_EQ(parent_->connect(desk_->child), 0);
    ASSERT_EQ(parent_->post_receives(64), 0);
    for (int i = 0; i < 5000 && desk_->child_there != 2; ++i) std::this_thread::sleep_for(1ms);
    ASSERT_EQ(desk_->child_there, 2);
  }

  [[nodiscard]] std::string link() const { return parent_->hca->link_description(parent_->qp); }

  /// One message there and back, through memory that is wiped in between.
  void expect_echo(std::uint32_t offset, std::uint32_t bytes) {
    Random random(offset * 7919U + bytes);
    std::vector<std::byte> sent(bytes);
    for (std::byte& b : sent) b = static_cast<std::byte>(random.next());
    std::ranges::copy(sent, parent_->memory.begin() + offset);
    ASSERT_EQ(parent_->post_receives(1), 0);
    ASSERT_EQ(parent_->write_imm(desk_->child, offset, bytes, offset), 0);
    for (int i = 0; i < 2; ++i) {  // our send and the echo, in either order
      const auto completion = parent_->next();
      ASSERT_TRUE(completion);
      ASSERT_EQ(completion->status, WcStatus::kSuccess);
      if (completion->opcode == WcOpcode::kRecvWithImm) {
        ASSERT_EQ(completion->byte_len, bytes);
        ASSERT_EQ(completion->immediate, offset);
      }
    }
    ASSERT_TRUE(std::equal(sent.begin(), sent.end(), parent_->memory.begin() + offset));
  }

  SharedDesk desk_;
  std::optional<ChildProcess> child_;
  std::optional<Endpoint> parent_;
};

}  // namespace tensorwire::softhca::testing
