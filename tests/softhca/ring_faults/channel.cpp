#include "channel.hpp"

namespace tensorwire::softhca::faults {

Channel::Channel(std::size_t from_host, std::size_t to_host, const wire::Gid& sender_gid, bool in_process,
                 const transport::Withdrawals& withdrawals)
    : from(from_host), to(to_host), sender(sender_gid), same_process(in_process) {
  ChannelFds fds = ChannelFds::make();
  const PullSource source{.pid = static_cast<std::uint32_t>(::getpid()),
                          .same_process = same_process,
                          .probe = {reinterpret_cast<std::uint64_t>(probe.get()), *probe},
                          .withdrawals = reinterpret_cast<std::uint64_t>(&withdrawals)};
  in = std::make_unique<IncomingChannel>(*memory, fds.duplicate(), source, sender);
  out = std::make_unique<OutgoingChannel>(*memory, std::move(fds));
}

bool Channel::rang(const UniqueFd& fd) noexcept {
  std::uint64_t value = 0;
  return ::read(fd.get(), &value, sizeof value) == sizeof value;
}

}  // namespace tensorwire::softhca::faults
