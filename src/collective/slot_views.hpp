// Where messages lie that did not come into their slots: the sender's own memory, read in place. Owns, for each slot,
// the pieces of it that are elsewhere, until the slot is given back. No allocation after the constructor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tensorwire::collective {

/// The bytes of one message, read at `at`, and where they belong: `offset` is from the first slot of that peer, headers
/// included. They stay as they are until the slot is given back. Nothing where the message came into its slot, or
/// brings no bytes.
struct InPlace {
  const std::byte* at = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

class SlotViews {
 public:
  /// @param messages that a slot may have elsewhere; 0: none ever
  SlotViews(std::size_t slots, std::uint32_t messages)
      : messages_(messages), views_(slots * messages), counts_(messages != 0 ? slots : 0, 0) {}

  /// Whether all of the slot is in its own memory.
  [[nodiscard]] bool empty(std::size_t slot) const noexcept { return messages_ == 0 || counts_[slot] == 0; }
  /// @param view whose offset is from the start of the slot. False: the slot has all the messages that it may have.
  [[nodiscard]] bool add(std::size_t slot, const InPlace& view) noexcept {
    if (messages_ == 0 || counts_[slot] == messages_) return false;
    views_[slot * messages_ + counts_[slot]++] = view;
    return true;
  }
  void clear(std::size_t slot) noexcept {
    if (messages_ != 0) counts_[slot] = 0;
  }
  /// These bytes of the slot, or null where no one message has them all. The latest is looked at first.
  [[nodiscard]] const std::byte* find(std::size_t slot, std::uint64_t offset, std::uint64_t bytes) const noexcept {
    for (std::uint32_t i = counts_[slot]; i-- != 0;) {
      const InPlace& view = views_[slot * messages_ + i];
      if (offset >= view.offset && bytes <= view.bytes && offset - view.offset <= view.bytes - bytes) {
        return view.at + (offset - view.offset);
      }
    }
    return nullptr;
  }

 private:
  std::uint32_t messages_;
  std::vector<InPlace> views_;         ///< [slot * messages + i]
  std::vector<std::uint32_t> counts_;  ///< [slot]
};

}  // namespace tensorwire::collective
