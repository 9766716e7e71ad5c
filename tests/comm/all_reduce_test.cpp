// All-reduces between processes over the user-space HCA: every type, size and path gives the rank-order sum, to the
// bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <ostream>
#include <span>

#include "base/error.hpp"
#include "rank_processes.hpp"
#include "tensors.hpp"

namespace tensorwire::comm {
namespace {

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBfloat16};

struct Setting {
  int ranks;
  PathChoice path;
  std::uint32_t queue_pairs;
  std::uint32_t depth;
};

std::string name_of(const Setting& setting) {
  const char* path = setting.path == PathChoice::kAuto     ? "auto"
                     : setting.path == PathChoice::kMapped ? "mapped"
                                                           : "packets";
  return fmt::format("{}ranks_{}_{}qp_depth{}", setting.ranks, path, setting.queue_pairs, setting.depth);
}

/// How GoogleTest prints one.
void PrintTo(const Setting& setting, std::ostream* out) { *out << name_of(setting); }

void check_one(Communicator& comm, std::uint64_t seed, std::size_t bytes, DType dtype, bool in_place) {
  constexpr std::size_t kCanary = 64;
  const std::size_t count = bytes / collective::element_bytes(dtype);
  const auto input = input_of(seed, comm.rank(), count, dtype);
  std::vector<std::byte> in(input.size() + 2 * kCanary, std::byte{0x5a});
  if (count != 0) std::memcpy(in.data() + kCanary, input.data(), count * collective::element_bytes(dtype));
  std::vector<std::byte> apart(in.size(), std::byte{0x5a});
  std::vector<std::byte>& out = in_place ? in : apart;
  const std::string what =
      fmt::format("{} bytes of {}{}", bytes, collective::name_of(dtype), in_place ? " in place" : "");
  if (!comm.all_reduce(in.data() + kCanary, out.data() + kCanary, count, dtype)) throw Error{what, comm.error()->line};
  const auto expected = sum_of(seed, comm.size(), count, dtype);
  if (!std::ranges::equal(expected, std::span{out}.subspan(kCanary, expected.size()))) throw Error{what, "wrong sum"};
  for (const auto* memory : {&in, &out}) {
    for (std::size_t i = 0; i < kCanary; ++i) {
      if ((*memory)[i] != std::byte{0x5a} || (*memory)[memory->size() - 1 - i] != std::byte{0x5a}) {
        throw Error{what, "wrote outside of the tensor"};
      }
    }
  }
  comm.deregister_buffer(in.data(), in.size());
}

class AllReduce : public testing::TestWithParam<Setting> {};

TEST_P(AllReduce, EveryTypeAndSize) {
  const Setting setting = GetParam();
  const auto results = run_ranks(setting.ranks, [&](bootstrap::Group& group) {
    CommOptions options = soft_options();
    options.path = setting.path;
    options.queue_pairs_per_peer = setting.queue_pairs;
    options.depth = setting.depth;
    const auto comm = Communicator::create(group, options);
    std::uint64_t seed = 0;
    for (const DType dtype : kTypes) {
      for (const bool in_place : {false, true}) {
        for (const std::size_t bytes : {0, 4, 100, 1024, 4096, 65'536, 70'000, 262'144, 1'000'000}) {
          check_one(*comm, ++seed, bytes, dtype, in_place);
        }
      }
      check_one(*comm, ++seed, 8U << 20, dtype, dtype != DType::kFloat16);
    }
    const CommStats stats = comm->stats();
    for (const PeerReport& peer : stats.peers) {
      const bool packets = peer.path.find("RoCEv2 packets") != std::string::npos;
      if (setting.path == PathChoice::kPackets && !packets) throw Error{"path", "not by packets: " + peer.path};
      const bool mapped = peer.path.starts_with("mapped memory");
      if (setting.path == PathChoice::kMapped && !mapped) throw Error{"path", "not in mapped memory: " + peer.path};
    }
    return fmt::format("{} operations", stats.operations);
  });
  for (const RankResult& result : results) {
    EXPECT_EQ(result.exit_code, 0) << result.text;
    EXPECT_EQ(result.text, "57 operations");
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, AllReduce,
                         testing::Values(Setting{1, PathChoice::kAuto, 1, 2}, Setting{2, PathChoice::kAuto, 1, 2},
                                         Setting{2, PathChoice::kPackets, 1, 2}, Setting{3, PathChoice::kAuto, 1, 3},
                                         Setting{3, PathChoice::kPackets, 2, 2}, Setting{4, PathChoice::kAuto, 1, 2},
                                         Setting{4, PathChoice::kPackets, 1, 4}, Setting{1, PathChoice::kMapped, 1, 2},
                                         Setting{2, PathChoice::kMapped, 1, 2}, Setting{3, PathChoice::kMapped, 2, 3},
                                         Setting{5, PathChoice::kMapped, 1, 4}, Setting{8, PathChoice::kMapped, 1, 2}),
                         [](const auto& test) { return name_of(test.param); });

TEST(AllReduceArguments, BadOnesAreRefusedAndHarmNothing) {
  const auto results = run_ranks(2, [](bootstrap::Group& group) {
    const auto comm = Communicator::create(group, soft_options());
    std::vector<float> data(64, 1.0F);
    std::string lines;
    const auto refused = [&](const void* in, void* out, std::size_t count, DType dtype) {
      if (comm->all_reduce(in, out, count, dtype)) throw Error{"bad arguments", "were taken"};
      lines += comm->error()->line + "\n";
    };
    refused(data.data(), data.data() + 1, 32, DType::kFloat32);
    refused(nullptr, data.data(), 32, DType::kFloat32);
    refused(data.data(), data.data(), 32, static_cast<DType>(9));
    if (!comm->all_reduce(data.data(), data.data() + 32, 32, DType::kFloat32)) throw Error{"good", comm->error()->line};
    if (data[32] != 2.0F) throw Error{"good", "wrong sum"};
    return lines;
  });
  for (const RankResult& result : results) {
    EXPECT_EQ(result.exit_code, 0) << result.text;
    EXPECT_NE(result.text.find("overlap in part"), std::string::npos);
    EXPECT_NE(result.text.find("null"), std::string::npos);
    EXPECT_NE(result.text.find("element type"), std::string::npos);
  }
}

TEST(AllReduceFault, AWriteToTheWrongSlotIsCaught) {
  // One write of 160 operations goes one slot too far. Either its signature gives it away, or the sum is wrong.
  for (const std::uint32_t wrong_write : {40U, 41U}) {
    const auto results = run_ranks(
        2,
        [&](bootstrap::Group& group) {
          std::uint32_t writes = 0;
          CommOptions options = soft_options();
          options.thresholds = {0, 0, 0};
          options.operation_timeout = 5 * kSecond;
          if (group.rank() == 1) {
            options.fault_hook = [&](WriteRequest& request) {
              const std::uint64_t slot = options.slot_payload_bytes + collective::kSlotHeaderBytes;
              if (writes++ == wrong_write) {
                request.remote_offset += (request.remote_offset / slot) % 2 == 0 ? slot : -slot;
              }
            };
          }
          const auto comm = Communicator::create(group, options);
          for (std::uint64_t seed = 1; seed <= 160; ++seed) check_one(*comm, seed, 65'536, DType::kFloat16, false);
          return std::string{};
        },
        30 * kSecond);
    EXPECT_EQ(results[0].exit_code, 1) << "rank 0 took it for good";
    const bool by_signature = results[0].text.find("rank 1 disagrees on the operation number") != std::string::npos;
    const bool by_value = results[0].text.find("wrong sum") != std::string::npos;
    const bool by_slot =
        results[0].text.find("rank 1 broke the protocol: its message is for another") != std::string::npos;
    EXPECT_TRUE(by_signature || by_value || by_slot) << results[0].text;
  }
}

}  // namespace
}  // namespace tensorwire::comm
