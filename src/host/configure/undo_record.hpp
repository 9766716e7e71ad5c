// The record that a change leaves behind: a shell script for each interface that sets back what was there before, so
// that it can be taken back by this program, by a person who has nothing but a shell, or by a guard: a process of its
// own that nobody stopped.
#pragma once

#include <csignal>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "host/configure/difference.hpp"

namespace tensorwire::host {

/// Runs the records of a change where this process ends in the middle of it, however it ends, and, where there is a
/// bound, when nobody confirms it for so long afterwards. While it lives, signals that ask this process to end are held
/// back.
class Guard {
 public:
  /// @param marker  its file: who removes that stops it
  /// @param waits  for a confirmation
  Guard(UniqueFd lifeline, std::string marker, bool waits);
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  /// The change is made.
  void finished() noexcept;
  /// It was taken back already: there is nothing to guard.
  void stop() noexcept;

 private:
  UniqueFd lifeline_;
  std::string marker_;
  bool waits_;
  sigset_t before_{};
};

class UndoRecords {
 public:
  /// @param folder usually /var/lib/tensorwire/configure; made when it is first needed
  explicit UndoRecords(std::string folder) : folder_(std::move(folder)) {}

  /// One change at a time: while the descriptor is open, no other process gets one.
  /// @throws Error when one is being made
  [[nodiscard]] UniqueFd lock() const;

  /// Before the first change. What an earlier record says is done after this one, so that going back goes all the way.
  /// @param new_files  that come with the change, and go with it
  /// @return the earlier record; empty: there was none
  /// @throws Error when it cannot be written: then nothing may be changed
  [[nodiscard]] std::string write(const PortDifference& difference, std::span<const std::string> new_files) const;
  /// When the change was taken back: `text` is what write() returned.
  void replace(const std::string& netdev, const std::string& text) const;
  [[nodiscard]] bool exists(const std::string& netdev) const;
  /// Where it lies.
  [[nodiscard]] std::string path(const std::string& netdev) const;
  /// Runs it, and removes it if all of it was done. @return false: some of it failed; the record stays
  [[nodiscard]] bool run(const std::string& netdev) const;

  /// To be had between the records and the first change.
  /// @param bound  nothing: the change needs no confirmation
  /// @throws Error when it cannot be started
  [[nodiscard]] Guard guard(std::span<const std::string> netdevs, std::optional<Ps> bound) const;
  /// Stops all guards that wait for a confirmation. @return how many there were
  std::size_t disarm() const;

 private:
  std::string folder_;
};

}  // namespace tensorwire::host
