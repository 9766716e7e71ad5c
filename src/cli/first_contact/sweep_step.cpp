#include "cli/first_contact/sweep_step.hpp"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/units.hpp"
#include "bootstrap/socket.hpp"
#include "cli/first_contact/child.hpp"

namespace tensorwire::cli {
namespace {

using Json = nlohmann::json;

constexpr Ps kSweepBound = 180 * kSecond;
constexpr Ps kSweepAnswerBound = kSweepBound + 10 * kSecond;

/// This process's environment, with a launcher's words about who the rank is in place of those that started it.
std::vector<std::string> environment_of(const Json& request) {
  bootstrap::Environment variables = bootstrap::process_environment();
  const auto number = [&](const char* name) { return std::to_string(request.at(name).get<int>()); };
  variables["RANK"] = number("rank");
  variables["WORLD_SIZE"] = number("world");
  variables["LOCAL_RANK"] = number("local_rank");
  variables["LOCAL_WORLD_SIZE"] = number("local_world");
  variables["MASTER_ADDR"] = request.at("address").get<std::string>();
  variables["MASTER_PORT"] = number("port");
  variables["TORCHELASTIC_RUN_ID"] = "first-contact";
  std::vector<std::string> environment;
  for (const auto& [name, value] : variables) environment.push_back(fmt::format("{}={}", name, value));
  return environment;
}

/// A file that is gone with this object.
class TemporaryFile {
 public:
  TemporaryFile() {
    const char* const folder = std::getenv("TMPDIR");
    path_ = std::string{folder != nullptr && *folder != '\0' ? folder : "/tmp"} + "/tensorwire-XXXXXX";
    const int fd = mkstemp(path_.data());
    if (fd < 0) throw system_error("make a file like " + path_, errno);
    close(fd);
  }
  ~TemporaryFile() { unlink(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::string text() const {
    std::ostringstream text;
    text << std::ifstream{path_}.rdbuf();
    return text.str();
  }

 private:
  std::string path_;
};

std::vector<std::string> words_of_part(const Json& request, const std::string& device, const std::string& file) {
  const auto most = request.at("max_bytes").get<std::string>();
  if (request.at("part") == "nccl") return {"first-contact", "--part", "nccl", "--max-bytes", most};
  std::vector<std::string> words{"bench", "allreduce", "--paths", "roce,tcp", "-b", "1KiB",   "-e",
                                 most,    "-f",        "4",       "-n",       "20", "--json", file};
  if (!device.empty()) words.insert(words.end(), {"--device", device});
  return words;
}

/// A port of this host that is free now; the job's rank 0 takes it at once.
int free_port(const std::string& address) {
  const auto here = bootstrap::resolve(address, monotonic_now() + kSecond);
  int error = 0;
  const bootstrap::Socket socket = bootstrap::listen_on(here.front().any().with_port(0), error);
  if (!socket) throw system_error("find a free port", error);
  return bootstrap::local_address(socket).port();
}

std::map<int, Json> requests_for(const Star& star, const std::string& part, const SweepPlan& plan) {
  std::map<std::string, int> on_host;
  std::map<int, Json> requests;
  const std::vector<int> ranks = star.present();
  const int port = free_port(plan.address);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    requests[ranks[i]] = {{"op", "sweep"},
                          {"part", part},
                          {"max_bytes", plan.max_bytes},
                          {"rank", i},
                          {"world", ranks.size()},
                          {"address", plan.address},
                          {"port", port},
                          {"local_rank", on_host[star.host(ranks[i])]++}};
  }
  for (auto& [rank, request] : requests) request["local_world"] = on_host[star.host(rank)];
  return requests;
}

/// What the job's rank 0 tells; else `why` of the first rank that says something.
Json run_sweep(Star& star, const std::string& part, const SweepPlan& plan, std::string& why) {
  if (star.present().size() < 2) {
    why = "there are not two ranks left";
    return {};
  }
  const auto answers = star.ask(requests_for(star, part, plan), kSweepAnswerBound);
  const StarAnswer& first = answers.begin()->second;
  if (first.ok() && first.body.at("why").get<std::string>().empty()) return first.body;
  for (const auto& [rank, answer] : answers) {
    why = answer.ok() ? answer.body.at("why").get<std::string>() : answer.error;
    if (!why.empty()) break;
  }
  return {};
}

/// "1KiB in 12.3 us, 16MiB at 4.56 GB/s": the smallest and the largest tensor of a path.
std::string ends_of(const Json& results, const std::string& path) {
  const Json* least = nullptr;
  const Json* most = nullptr;
  for (const Json& row : results) {
    if (!path.empty() && row.value("path", "") != path) continue;
    if (least == nullptr) least = &row;
    most = &row;
  }
  if (least == nullptr) return {};
  return fmt::format("{}{} in {:.1f} us, {} at {:.2f} GB/s", path.empty() ? "" : path + " ",
                     format_bytes(least->value("bytes", std::uint64_t{0})), least->value("p50_us", 0.0),
                     format_bytes(most->value("bytes", std::uint64_t{0})), most->value("algbw_gb_s", 0.0));
}

std::size_t wrong_in(const Json& results) {
  std::size_t wrong = 0;
  for (const Json& row : results) wrong += row.value("wrong", std::size_t{0});
  return wrong;
}

}  // namespace

Json run_sweep_rank(const Json& request, const std::string& device, const volatile std::sig_atomic_t& stop) {
  const auto part = request.at("part").get<std::string>();
  const TemporaryFile file;
  ChildPlan plan;
  plan.words = this_program(words_of_part(request, device, file.path()));
  plan.environment = environment_of(request);
  plan.bound = kSweepBound;
  const ChildResult child = run_child(plan, stop);
  Json report = Json::parse(part == "nccl" ? child.out : file.text(), nullptr, false);
  return {{"status", child.status},
          // Wrong results end with a status as well, and with a report.
          {"why", child.ok() || report.is_object() ? "" : child.why()},
          {"json", report.is_object() ? std::move(report) : Json::object()},
          {"text", child.out}};
}

Outcome sweep_all_reduce(Star& star, const SweepPlan& plan, Kit& kit) {
  std::string why;
  const Json answer = run_sweep(star, "allreduce", plan, why);
  if (answer.is_null()) {
    kit.add("allreduce.json", Json{{"why", why}}.dump(2) + "\n");
    return {Outcome::Kind::kFailed, why};
  }
  const Json& report = answer.at("json");
  kit.add("allreduce.json", report.dump(2) + "\n");
  kit.add("allreduce.txt", answer.at("text").get<std::string>());
  const Json results = report.value("results", Json::array());
  if (const std::size_t wrong = wrong_in(results); wrong != 0) {
    return {Outcome::Kind::kBad, fmt::format("{} elements are WRONG", wrong)};
  }
  const bool nic = !ends_of(results, "rdma").empty();
  return {Outcome::Kind::kFine,
          fmt::format("{}; {}", ends_of(results, nic ? "rdma" : "roce"), ends_of(results, "tcp"))};
}

Outcome sweep_nccl(Star& star, const SweepPlan& plan, Kit& kit) {
  std::string why;
  const Json answer = run_sweep(star, "nccl", plan, why);
  const Json report = answer.is_null() ? Json{{"why", why}} : answer.at("json");
  kit.add("nccl.json", report.dump(2) + "\n");
  if (answer.is_null()) return {Outcome::Kind::kFailed, why};
  if (const auto none = report.value("why", ""); !none.empty()) return {Outcome::Kind::kNotHere, none};
  const Json results = report.value("results", Json::array());
  if (const std::size_t wrong = wrong_in(results); wrong != 0) {
    return {Outcome::Kind::kBad, fmt::format("{} elements are WRONG", wrong)};
  }
  return {Outcome::Kind::kFine, ends_of(results, "")};
}

}  // namespace tensorwire::cli
