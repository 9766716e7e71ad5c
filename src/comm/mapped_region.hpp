// Memory that ranks of one host map of each other. A SharedRegion is this rank's own: it alone can write it, others get
// its descriptor and can map it for reading only. A PeerRegion is such a mapping of another rank's.
//
// So a rank that was stopped and wakes late, or has gone mad, writes nobody's memory but its own; and the file can
// neither shrink nor grow (seals), so reading it never faults, whatever becomes of its owner.
#pragma once

#include <cstddef>
#include <span>

#include "base/unique_fd.hpp"

namespace tensorwire::comm {

class SharedRegion {
 public:
  /// Zeroed and populated. @throws Error when the system has not that much, or knows no sealed memory.
  explicit SharedRegion(std::size_t bytes);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  /// -1 after close_descriptor().
  [[nodiscard]] int descriptor() const noexcept { return fd_.get(); }
  /// Nobody else shall map it.
  void close_descriptor() noexcept { fd_.reset(); }

 private:
  UniqueFd fd_;
  std::span<std::byte> bytes_;
};

class PeerRegion {
 public:
  PeerRegion() noexcept = default;
  /// @throws Error when it is no sealed memory of this size: the other rank could take it away while it is read
  PeerRegion(int descriptor, std::size_t bytes);
  PeerRegion(PeerRegion&& other) noexcept;
  PeerRegion& operator=(PeerRegion&& other) noexcept;
  ~PeerRegion();

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace tensorwire::comm
