#include "cli/mesh/host_part.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "cli/interrupt.hpp"
#include "cli/mesh/matrix.hpp"

namespace tensorwire::cli {
namespace {

/// Rank 0's own part, on a thread of its own; signals belong to the one that leads.
class OwnPart {
 public:
  OwnPart(JsonLine line, const HostHandler& handler) : line_(std::move(line)) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread{[this, &handler] {
      try {
        static_cast<void>(answer_star(line_, handler));
      } catch (const Error&) {
        // Its line is closed: the leader has given it up and knows why.
      }
    }};
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~OwnPart() { thread_.join(); }
  OwnPart(const OwnPart&) = delete;
  OwnPart& operator=(const OwnPart&) = delete;

 private:
  JsonLine line_;
  std::thread thread_;
};

}  // namespace

nlohmann::json HostPart::introduce() {
  std::vector<Rail> rails = open_rails(wish_);
  std::size_t first = 0;
  if (options_.local_world_size > 1) {
    first = static_cast<std::size_t>(options_.local_rank) % rails.size();
    std::vector<Rail> mine;
    mine.push_back(std::move(rails[first]));
    rails = std::move(mine);
  }
  MeshRank rank;
  for (const Rail& rail : rails) rank.ends.push_back(rail.end);
  rank.first_rail = first;
  probe_.emplace(std::move(rails));
  return introduction_of(rank);
}

nlohmann::json HostPart::handle(const nlohmann::json& request) {
  if (request.value("op", "") == "introduce") return introduce();
  if (!probe_) throw Error{request.value("op", ""), "no rail is open"};
  return probe_->handle(request);
}

int run_star(const bootstrap::GroupOptions& options, const HostHandler& handler,
             const std::function<int(Star&)>& lead) {
  if (options.rank != 0) {
    JsonLine line = join_star(options);
    return answer_star(line, handler);
  }
  const Interruptible interruptible;
  auto [own, mine] = JsonLine::pair();
  const OwnPart part{std::move(mine), handler};
  const bool terminal = isatty(STDERR_FILENO) == 1;
  Star star{options, std::move(own), interrupt_flag(), [&](int in) {
              if (terminal)
                fmt::print(stderr, "\r\033[K{} of {} ranks are here{}", in, options.world_size,
                           in == options.world_size ? "\r\033[K" : "");
              std::fflush(stderr);
            }};
  const int status = lead(star);
  star.dismiss(status);
  return status;
}

}  // namespace tensorwire::cli
