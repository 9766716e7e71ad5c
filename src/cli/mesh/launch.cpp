#include "cli/mesh/launch.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "base/error.hpp"
#include "base/units.hpp"
#include "cli/bench/local_launch.hpp"
#include "cli/program.hpp"

namespace tensorwire::cli {
namespace {

constexpr int kMostLocalRanks = 64;

bool is_rank(const HostsFlags& flags) {
  return flags.group.rank.has_value() || bootstrap::under_launcher(bootstrap::process_environment());
}

/// As a shell reads it back.
std::string quoted(const std::string& word) {
  constexpr const char* kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./:,=+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string{"'\\''"} : std::string{c};
  return text + "'";
}

/// Files are rank 0's to write.
bool is_of_rank_0(const std::string& word) {
  return word == "--hosts" || word == "--json" || word == "--output" || word == "-o";
}

}  // namespace

void HostsFlags::add_to(Command& command) {
  constexpr const char* kHeading = "Without a launcher";
  command.option("--wait", wait, "how long to wait for the other hosts, as 60s; then those who came are measured");
  command.option("--hosts", hosts, "this host and the others: prints what to start on them")
      .separated_by(',')
      .listed_under(kHeading);
  command.option("--ranks", ranks, "start so many ranks on this host alone, to try it out").listed_under(kHeading);
  command.option("--rank", group.rank, "this host's number").listed_under(kHeading);
  command.option("--world-size", group.world_size, "number of hosts").listed_under(kHeading);
  command.option("--master-addr", group.master_address, "host of rank 0").listed_under(kHeading);
  command.option("--master-port", group.master_port, "TCP port of rank 0").listed_under(kHeading);
}

bool started_local_ranks(const HostsFlags& flags, int& status) {
  if (flags.ranks == 0 || is_rank(flags)) return false;
  if (flags.ranks < 1 || flags.ranks > kMostLocalRanks) {
    throw Error{fmt::format("--ranks {}", flags.ranks), fmt::format("not between 1 and {}", kMostLocalRanks)};
  }
  status = run_local_ranks(flags.ranks, program_arguments());
  return true;
}

std::vector<std::string> lines_to_start(const std::vector<std::string>& words, const std::vector<std::string>& hosts,
                                        std::uint16_t port) {
  std::string kept = "tensorwire";
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (is_of_rank_0(words[i])) {
      ++i;
    } else if (!is_of_rank_0(words[i].substr(0, words[i].find('=')))) {
      kept += " " + quoted(words[i]);
    }
  }
  std::vector<std::string> lines;
  for (std::size_t rank = 1; rank < hosts.size(); ++rank) {
    lines.push_back(fmt::format("{}$ {} --rank {} --world-size {} --master-addr {} --master-port {}", hosts[rank], kept,
                                rank, hosts.size(), quoted(hosts[0]), port));
  }
  return lines;
}

bootstrap::GroupOptions ranks_of(const HostsFlags& flags, const std::string& command) {
  bootstrap::GroupFlags group = flags.group;
  if (!flags.hosts.empty() && !is_rank(flags)) {
    group.rank = 0;
    group.world_size = static_cast<int>(flags.hosts.size());
    group.master_address = flags.group.master_address.value_or(flags.hosts[0]);
  } else if (!is_rank(flags)) {
    throw Error{
        command, "nobody says which hosts take part",
        fmt::format(
            "Start it under torchrun, srun or mpirun, a rank on each host; or here with --hosts THIS,OTHER,..., "
            "which prints the lines for the others; or try it out with --ranks 3")};
  }
  bootstrap::GroupOptions options = bootstrap::detect_options(bootstrap::process_environment(), group);
  if (!flags.wait.empty()) options.timeout = parse_duration(flags.wait);
  bootstrap::check_options(options);
  if (options.world_size < 2)
    throw Error{command, "there is but one rank", "It takes two hosts to measure what is between"};
  if (!flags.hosts.empty() && options.rank == 0) {
    auto hosts = flags.hosts;
    hosts[0] = options.master_address;
    fmt::print(stderr, "start on the other hosts, within {}:\n", format_duration(options.timeout));
    for (const std::string& line : lines_to_start(program_arguments(), hosts, options.master_port)) {
      fmt::print(stderr, "  {}\n", line);
    }
    if (!options.secret.empty()) fmt::print(stderr, "with the same TENSORWIRE_SECRET or TENSORWIRE_SECRET_FILE\n");
  }
  return options;
}

}  // namespace tensorwire::cli
