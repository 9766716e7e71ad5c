#include "host/parse/nccl_log.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "host/parse/text.hpp"

namespace tensorwire::host {

namespace {

constexpr std::size_t kMostLines = 32;
constexpr std::size_t kMostChannels = 16'384;
constexpr std::size_t kLongestLine = 400;

/// Words that decide what kind of line it is. The first row that fits counts.
struct LineKind {
  std::string_view words;
  std::vector<LogLine> NcclLog::*lines;
};

constexpr std::array kLineKinds = {
    LineKind{"Using network ", &NcclLog::networks},
    LineKind{"NET/IB : No device found", &NcclLog::without_device},
    LineKind{"Failed to open libibverbs.so", &NcclLog::without_library},
    LineKind{"GPU Direct RDMA Disabled", &NcclLog::gdr_disabled},
    LineKind{"does not support the kernel ABI of", &NcclLog::wrong_abi},
    LineKind{"Got async event : port error", &NcclLog::port_errors},
    LineKind{"local access violation work queue error", &NcclLog::violations},
    LineKind{"read failed in ncclIbRoceGetVersionNum", &NcclLog::sparse_table},
    LineKind{"completion for a CTS but retrieved", &NcclLog::lost_clearance},
    LineKind{"Connection refused", &NcclLog::refused},
    LineKind{"No route to host", &NcclLog::refused},
    LineKind{"Using interface lo:", &NcclLog::loopback},
    LineKind{"Bootstrap : Using lo:", &NcclLog::loopback},
    LineKind{"Bootstrap: Using lo:", &NcclLog::loopback},
};

constexpr std::array kErrors = {
    std::pair{std::string_view{"Connection timed out"}, ETIMEDOUT},
    std::pair{std::string_view{"Invalid argument"}, EINVAL},
    std::pair{std::string_view{"No data available"}, ENODATA},
    std::pair{std::string_view{"No such device"}, ENODEV},
    std::pair{std::string_view{"Network is unreachable"}, ENETUNREACH},
};

/// The number after `before`; 0 where there is none.
int number_after(std::string_view text, std::string_view before) {
  const auto rest = between(text, before, {});
  return rest ? leading_number(trimmed(*rest)).value_or(0) : 0;
}

std::string word_after(std::string_view text, std::string_view before) {
  const auto rest = between(text, before, {});
  return rest ? std::string{rest->substr(0, rest->find_first_of(" ,\t"))} : std::string{};
}

/// The address in "local GID index 3, local GID ::ffff:192.0.2.10".
std::string local_gid(std::string_view text) {
  const auto rest = between(text, "local GID index ", {});
  return rest ? word_after(*rest, "local GID ") : std::string{};
}

/// "failed with 110 Connection timed out", or, as older versions write, "failed with error Connection timed out".
int connect_error(std::string_view text) {
  if (const int number = number_after(text, "failed with "); number != 0) return number;
  for (const auto& [words, number] : kErrors) {
    if (text.find(words) != std::string_view::npos) return number;
  }
  return 0;
}

/// The first numbers of "1[0] -> 0[0]".
void read_ranks(std::string_view text, NetChannel& channel) {
  channel.from = leading_number(trimmed(text)).value_or(-1);
  if (const auto to = between(text, "-> ", {})) channel.to = leading_number(*to).value_or(-1);
}

/// "IB/0/GDRDMA", since 2.24 also "IB/0/GDRDMA(PCI)", and "/Shared" after it; "IB/0(9)" goes through rank 9's NIC.
bool read_channel(std::string_view text, std::size_t number, NcclLog& log) {
  const auto network = between(text, " via NET/", {});
  const auto name = between(text, "Channel ", " :");
  if (!network || !name) return false;
  NetChannel channel{number, std::string{trimmed(*name)}, -1, -1, text.find("[send]") != std::string_view::npos, {},
                     false};
  read_ranks(*between(text, " :", {}), channel);
  const auto gdr = network->find("/GDRDMA");
  channel.gdr = gdr != std::string_view::npos;
  channel.network = network->substr(0, std::min(gdr, network->find("/Shared")));
  if (log.channels.size() < kMostChannels) log.channels.push_back(std::move(channel));
  return true;
}

bool read_failure(std::string_view text, const LogLine& line, NcclLog& log) {
  if (text.find("Got completion ") != std::string_view::npos) {
    const int status = number_after(text, "status=") + number_after(text, "with error ");
    if (status != 0 && log.completions.size() < kMostLines) {
      log.completions.push_back({line, status, number_after(text, "vendor err ")});
    }
    return true;
  }
  if (text.find("ibv_modify_qp failed") != std::string_view::npos) {
    if (text.find(", retrying ") != std::string_view::npos) return true;  // a line of its own follows if it was in vain
    if (log.connects.size() < kMostLines) {
      log.connects.push_back({line, connect_error(text), local_gid(text), word_after(text, "remote GID ")});
    }
    return true;
  }
  // "dlvsym failed on ibv_reg_dmabuf_mr" says only that libibverbs is older than that call.
  if (text.find("ibv_reg_") != std::string_view::npos && text.find("failed with ") != std::string_view::npos) {
    if (log.registration.size() < kMostLines) log.registration.push_back(line);
    return true;
  }
  return false;
}

}  // namespace

NcclLog parse_nccl_log(std::string_view text, std::string path) {
  NcclLog log;
  log.path = std::move(path);
  std::size_t number = 0;
  for (const std::string_view whole : lines_of(text)) {
    const std::string_view words = trimmed(whole);
    const LogLine line{++number, std::string{words.substr(0, kLongestLine)}};
    if (log.version.empty()) {
      if (const auto version = between(words, "NCCL version ", "+"))
        log.version = version->substr(0, version->find(' '));
    }
    if (read_failure(words, line, log) || read_channel(words, number, log)) continue;
    for (const LineKind& kind : kLineKinds) {
      if (words.find(kind.words) == std::string_view::npos) continue;
      if ((log.*kind.lines).size() < kMostLines) (log.*kind.lines).push_back(line);
      break;
    }
  }
  return log;
}

}  // namespace tensorwire::host
