// The record that a change leaves behind: a shell script for each interface that sets back what was there before, so
// that it can be taken back by this program, by a person who has nothing but a shell, or by a timer that nobody
// stopped.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "host/configure/difference.hpp"

namespace tensorwire::host {

class UndoRecords {
 public:
  /// @param folder usually /var/lib/tensorwire/configure; made when it is first written to
  explicit UndoRecords(std::string folder) : folder_(std::move(folder)) {}

  /// Before the first change. What an earlier record says is done after this one, so that going back goes all the way.
  /// @return the earlier record; empty: there was none
  /// @throws Error when it cannot be written: then nothing may be changed
  [[nodiscard]] std::string write(const PortDifference& difference) const;
  /// When the change was taken back: `text` is what write() returned.
  void replace(const std::string& netdev, const std::string& text) const;
  [[nodiscard]] bool exists(const std::string& netdev) const;
  /// Where it lies.
  [[nodiscard]] std::string path(const std::string& netdev) const;
  /// Runs it, and removes it if all of it was done. @return false: some of it failed; the record stays
  [[nodiscard]] bool run(const std::string& netdev) const;

  /// A process of its own, which outlives this one and its terminal, runs the records after `bound` unless disarmed.
  /// @throws Error when it cannot be started
  void arm(std::span<const std::string> netdevs, Ps bound) const;
  /// Stops all timers. @return how many there were
  std::size_t disarm() const;

 private:
  std::string folder_;
};

}  // namespace tensorwire::host
