// The last packets before a violation, kept as numbers and written out only when somebody wants to read them.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "packet.hpp"
#include "reference_qp.hpp"
#include "wire/headers.hpp"

namespace tensorwire::transport::faults {

class Trace {
 public:
  void sent(Ps now, std::size_t host, const wire::Headers& headers, std::uint32_t bytes, bool again) noexcept {
    next() = {now, host, headers, bytes, again ? "sent again" : "sent", "", Truth::kGenuine};
  }
  void arrived(Ps now, std::size_t host, const wire::Headers& headers, std::uint32_t bytes, const Judgement& judgement,
               Truth truth) noexcept {
    const char* verdict = judgement.point != Point::kCount      ? kPointNames[static_cast<std::size_t>(judgement.point)]
                          : judgement.action == RxAction::kDrop ? name(judgement.drop).data()
                                                                : "answer";
    next() = {now, host, headers, bytes, "arrived", verdict, truth};
  }
  void note(Ps now, std::size_t host, const char* what) noexcept {
    next() = {now, host, {}, 0, what, "", Truth::kGenuine};
  }

  [[nodiscard]] std::string text() const;

 private:
  struct Entry {
    Ps time = 0;
    std::size_t host = 0;
    wire::Headers headers;
    std::uint32_t bytes = 0;
    const char* what = nullptr;
    const char* verdict = nullptr;
    Truth truth = Truth::kGenuine;
  };
  static constexpr std::size_t kEntries = 48;

  Entry& next() noexcept { return entries_[count_++ % kEntries]; }

  std::array<Entry, kEntries> entries_{};
  std::size_t count_ = 0;
};

}  // namespace tensorwire::transport::faults
