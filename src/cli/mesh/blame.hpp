// From bad cells of a matrix to what they have in common: a rail, a host, a cable, a pair, one direction. Pure: which
// cells are bad, and by what measure, is the caller's business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tensorwire::cli {

/// A cell of the matrix. Whatever was not measured is not among the cells that are blamed.
struct JudgedCell {
  std::size_t rail = 0;
  std::size_t from = 0;
  std::size_t to = 0;
  bool bad = false;
};

enum class BlameScope : std::uint8_t {
  kAll,       ///< every cell there is
  kRail,      ///< one rail among several, all over
  kHost,      ///< one host, on all its rails
  kCable,     ///< one host on one rail of several: its device, its cable, its switch port
  kPair,      ///< two hosts, on all rails they share
  kRailPair,  ///< two hosts on one rail of several
};

enum class BlameWay : std::uint8_t { kBothWays, kSending, kReceiving };

struct Blame {
  BlameScope scope{};
  BlameWay way = BlameWay::kBothWays;
  std::optional<std::size_t> rail = {};  ///< none: all of them, or the only one
  std::size_t host = 0;                  ///< of a pair the one that sends
  std::size_t peer = 0;                  ///< of a pair
  std::vector<std::size_t> cells = {};   ///< the bad ones that it explains, as places in the argument
};

/// The widest explanations first, and each bad cell is explained once. A group is blamed when three quarters of its
/// cells (of a rail nine tenths) that nothing explained yet are bad, and only where other cells tell it from the rest:
/// a host among three, a rail among two.
[[nodiscard]] std::vector<Blame> find_blame(const std::vector<JudgedCell>& cells);

}  // namespace tensorwire::cli
