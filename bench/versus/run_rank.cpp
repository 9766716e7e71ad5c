// The ranks' end of the driver's orders. Line by line over a Unix socket:
//   rank:    hello RANK PROCESS DESCRIPTION
//   driver:  run BYTES ITERATIONS WARMUP FIRST_OPERATION PLANT HUGE_PAGES
//   rank:    wrong N | path TEXT | counter NAME DIFFERENCE | times NANOSECONDS... | done
//   driver:  end
// Waiting for an order sleeps, so that the ranks of the other libraries cost nothing while one is measured.
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "library.hpp"
#include "operation_input.hpp"
#include "start_line.hpp"

namespace tensorwire::versus {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

const char* setting(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) throw std::runtime_error{std::string{name} + " is not set; run.py starts this program"};
  return text;
}

class Orders {
 public:
  explicit Orders(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) throw std::runtime_error{path + " is too long for a socket"};
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    if (fd_ < 0 || connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      throw std::system_error{errno, std::generic_category(), "connect to " + path};
    }
  }
  ~Orders() { close(fd_); }
  Orders(const Orders&) = delete;
  Orders& operator=(const Orders&) = delete;

  void say(const std::string& text) const {
    for (std::size_t at = 0; at < text.size();) {
      const ssize_t sent = send(fd_, text.data() + at, text.size() - at, MSG_NOSIGNAL);
      if (sent < 0) throw std::system_error{errno, std::generic_category(), "answer the driver"};
      at += static_cast<std::size_t>(sent);
    }
  }
  /// "" when the driver is gone.
  std::string next_line() {
    for (;;) {
      if (const auto end = unread_.find('\n'); end != std::string::npos) {
        std::string line = unread_.substr(0, end);
        unread_.erase(0, end + 1);
        return line;
      }
      char bytes[256];
      const ssize_t got = read(fd_, bytes, sizeof bytes);
      if (got <= 0) return {};
      unread_.append(bytes, static_cast<std::size_t>(got));
    }
  }

 private:
  int fd_;
  std::string unread_;
};

/// Page-aligned memory, in huge pages where that is asked for and had.
class Tensor {
 public:
  Tensor(std::size_t count, bool huge) : count_(count) {
    memory_ = static_cast<float*>(std::aligned_alloc(huge ? kHugePage : 4096, rounded(huge)));
    if (memory_ == nullptr) throw std::bad_alloc{};
    if (huge) madvise(memory_, rounded(huge), MADV_HUGEPAGE);
    std::memset(memory_, 0, count * sizeof(float));
  }
  ~Tensor() { std::free(memory_); }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  [[nodiscard]] float* data() const { return memory_; }
  [[nodiscard]] std::span<float> elements() const { return {memory_, count_}; }

 private:
  [[nodiscard]] std::size_t rounded(bool huge) const {
    const std::size_t unit = huge ? kHugePage : 4096;
    return (count_ * sizeof(float) + unit - 1) / unit * unit;
  }

  std::size_t count_;
  float* memory_;
};

struct Order {
  std::size_t count = 0;
  std::uint64_t iterations = 0, warmup = 0, first_operation = 0;
  std::int64_t plant = -1;  ///< in this timed operation a wrong element is put into the result, for tests
  bool huge_pages = false;
};

Order parse(const std::string& line) {
  std::istringstream words{line};
  std::string verb;
  std::size_t bytes = 0;
  Order order;
  words >> verb >> bytes >> order.iterations >> order.warmup >> order.first_operation >> order.plant >>
      order.huge_pages;
  order.count = bytes / sizeof(float);
  if (!words || verb != "run" || order.count == 0) throw std::runtime_error{"an order that makes no sense: " + line};
  return order;
}

std::string obey(Library& library, StartLine& start, const Order& order) {
  using Clock = std::chrono::steady_clock;
  const Tensor in{order.count, order.huge_pages};
  const Tensor out{order.count, order.huge_pages};
  library.prepare(in.data(), out.data(), order.count);
  const auto before = library.counters();
  std::uint64_t wrong = 0;
  std::ostringstream times;
  for (std::uint64_t i = 0; i < order.warmup + order.iterations; ++i) {
    const std::uint64_t operation = order.first_operation + i;
    fill(library.rank(), operation, in.elements());
    start.wait();
    const auto begun = Clock::now();
    library.all_reduce(in.data(), out.data(), order.count);
    const auto took = Clock::now() - begun;
    if (i >= order.warmup) times << ' ' << std::chrono::nanoseconds{took}.count();
    if (order.plant >= 0 && i == order.warmup + static_cast<std::uint64_t>(order.plant)) {
      out.data()[order.count / 2] += 1;
    }
    wrong += count_wrong(library.ranks(), operation, out.elements());
  }
  std::ostringstream answer;
  answer << "wrong " << wrong << "\npath " << library.path(order.count) << '\n';
  const auto after = library.counters();
  for (std::size_t i = 0; i < after.size(); ++i) {
    answer << "counter " << after[i].first << ' ' << after[i].second - before[i].second << '\n';
  }
  library.forget(in.data(), out.data(), order.count);
  return answer.str() + "times" + times.str() + "\ndone\n";
}

}  // namespace

int run_rank(Library& library) {
  StartLine start{setting("VERSUS_START_LINE"), library.ranks()};
  Orders orders{setting("VERSUS_ORDERS")};
  orders.say("hello " + std::to_string(library.rank()) + " " + std::to_string(getpid()) + " " + library.description() +
             "\n");
  for (std::string line = orders.next_line(); !line.empty() && line != "end"; line = orders.next_line()) {
    orders.say(obey(library, start, parse(line)));
  }
  return 0;
}

}  // namespace tensorwire::versus
