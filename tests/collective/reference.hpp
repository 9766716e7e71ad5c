// What every collective must leave on every rank, computed the plain way, in the promised order of summation.
#pragma once

#include <algorithm>
#include <vector>

#include "collective/builder_parts.hpp"
#include "random_network.hpp"

namespace tensorwire::collective {

class Reference {
 public:
  Reference(std::uint64_t seed, std::uint32_t ranks, std::size_t index, const Call& call, std::uint64_t slot_payload)
      : call_(call), ranks_(ranks), size_(element_bytes(call.dtype)) {
    cut_ = split(call.algorithm, call.shape(ranks), slot_payload, call.options());
    for (std::uint32_t r = 0; r < ranks; ++r) inputs_.push_back(RandomNetwork::input_of(seed, ranks, r, index, call));
  }

  [[nodiscard]] std::vector<std::byte> output(std::uint32_t rank) const {
    const std::size_t block = call_.count * size_;
    switch (call_.collective) {
      case Collective::kAllReduce:
        return all_reduced();
      case Collective::kReduceScatter:
        return ranks_ == 1 ? inputs_[0] : summed(all(rank * block, block), call_.op);
      case Collective::kAllGather: {
        std::vector<std::byte> result;
        for (const auto& input : inputs_) result.insert(result.end(), input.begin(), input.end());
        return result;
      }
      case Collective::kBroadcast:
        return inputs_[call_.root];
      case Collective::kAllToAll:
        return exchanged(rank);
      case Collective::kSendRecv:
        return rank == call_.peer ? inputs_[call_.root] : std::vector<std::byte>{};
      case Collective::kBarrier:
        break;
    }
    return {};
  }

 private:
  using Bytes = std::vector<std::byte>;

  [[nodiscard]] Bytes part(std::uint32_t rank, std::size_t offset, std::size_t bytes) const {
    const auto begin = inputs_[rank].begin() + static_cast<std::ptrdiff_t>(offset);
    return {begin, begin + static_cast<std::ptrdiff_t>(bytes)};
  }

  [[nodiscard]] std::vector<Bytes> all(std::size_t offset, std::size_t bytes) const {
    std::vector<Bytes> parts;
    for (std::uint32_t r = 0; r < ranks_; ++r) parts.push_back(part(r, offset, bytes));
    return parts;
  }

  /// In the given order.
  [[nodiscard]] Bytes summed(const std::vector<Bytes>& parts, Op op) const {
    std::vector<const std::byte*> operands;
    for (const Bytes& bytes : parts) operands.push_back(bytes.data());
    Bytes result(parts[0].size());
    reduce_at(SimdLevel::kScalar, {call_.dtype, op, ranks_}, operands, result.data(), nullptr, result.size() / size_);
    return result;
  }

  [[nodiscard]] Op op_between() const { return call_.op == Op::kAverage ? Op::kSum : call_.op; }

  [[nodiscard]] Bytes all_reduced() const {
    if (ranks_ == 1) return inputs_[0];
    if (call_.algorithm == Algorithm::kRing) return around_a_ring();
    if (call_.algorithm != Algorithm::kHierarchical) return summed(inputs_, call_.op);
    std::vector<Bytes> groups;
    for (std::uint32_t first = 0; first < ranks_; first += call_.group_ranks) {
      groups.push_back(summed({inputs_.begin() + first, inputs_.begin() + first + call_.group_ranks}, op_between()));
    }
    return summed(groups, call_.op);
  }

  [[nodiscard]] Bytes around_a_ring() const {
    Bytes result;
    for (std::uint64_t s = 0; s < cut_.segments; ++s) {
      const std::uint64_t count = s + 1 == cut_.segments ? cut_.last_count : cut_.segment_count;
      const Chunks chunks{count * size_, ranks_};
      for (std::uint32_t c = 0; c < ranks_; ++c) {
        const std::size_t offset = s * cut_.segment_count * size_ + chunks.offset(c);
        Bytes sum = part((c + 1) % ranks_, offset, chunks.bytes(c));
        for (std::uint32_t k = 2; k <= ranks_; ++k) {
          const Bytes next = part((c + k) % ranks_, offset, chunks.bytes(c));
          sum = summed({sum, next}, k == ranks_ ? call_.op : op_between());
        }
        result.insert(result.end(), sum.begin(), sum.end());
      }
    }
    return result;
  }

  [[nodiscard]] Bytes exchanged(std::uint32_t rank) const {
    const auto count = [&](std::uint32_t from, std::uint32_t to) {
      return call_.counts.empty() ? call_.count : call_.counts[std::size_t{from} * ranks_ + to];
    };
    Bytes result;
    for (std::uint32_t from = 0; from < ranks_; ++from) {
      std::size_t before = 0;
      for (std::uint32_t to = 0; to < rank; ++to) before += count(from, to);
      const Bytes block = part(from, before * size_, count(from, rank) * size_);
      result.insert(result.end(), block.begin(), block.end());
    }
    return result;
  }

  Call call_;
  std::uint32_t ranks_;
  std::size_t size_;
  Segmentation cut_;
  std::vector<Bytes> inputs_;
};

}  // namespace tensorwire::collective
