#include "softhca/engine_thread.hpp"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <system_error>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace tensorwire::softhca {

namespace {

/// A pass of the application this recently: it polls, or is between two polls, sending or adding up a message.
constexpr Ps kPollsNow = 150 * kMicrosecond;
constexpr Ps kStandByPeriod = kMillisecond;
/// No acknowledge timer of an adapter in real time is shorter (EngineConfig::ack_timeout_floor).
constexpr Ps kTimerGrace = 20 * kMillisecond;
/// How long a peer's knock or a change of the interface may wait while there is always work.
constexpr Ps kSidePeriod = 10 * kMillisecond;
/// The second look, when the first one met the application between two polls.
constexpr Ps kSecondLook = 100 * kMicrosecond;
constexpr std::uint32_t kFewUselessWakes = 2;
constexpr std::uint32_t kManyUselessWakes = 4096;
/// A stand-by that lasted this long was right: the next one comes easily again.
constexpr Ps kLongStandBy = 5 * kMillisecond;

/// How long to look again after work before sleeping. Only where cores are left over: on a small machine the thread
/// that is waited for needs this core.
Ps linger_time_for_machine() noexcept {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) return 0;
  return CPU_COUNT(&cpus) >= 4 ? 20 * kMicrosecond : 0;
}

/// All but the faults that a copy from memory may raise: a blocked SIGSEGV kills.
sigset_t signals_to_block() noexcept {
  sigset_t set;
  sigfillset(&set);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&set, fault);
  return set;
}

}  // namespace

EngineThread::EngineThread()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      useless_needed_(kFewUselessWakes),
      linger_time_(linger_time_for_machine()) {
  if (!epoll_ || !event_) throw system_error("set up the engine thread", errno);
  watch_fd(event_.get());
}

EngineThread::~EngineThread() { stop(); }

void EngineThread::start(Shard& shard, std::array<int, 2> receive_fds, std::vector<Side> sides,
                         const std::string& name) {
  shard_ = &shard;
  receive_fds_ = receive_fds;
  sides_ = std::move(sides);
  for (const int fd : receive_fds_) watch_fd(fd);
  for (const Side& side : sides_) watch_fd(side.fd);

  // The thread inherits the mask: no moment in which a signal of the application could land on it.
  const sigset_t blocked = signals_to_block();
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  try {
    thread_ = std::make_unique<std::thread>([this] { run(); });
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw system_error("start the engine thread", error.code().value());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread_->native_handle(), name.substr(0, 15).c_str());
}

void EngineThread::stop() noexcept {
  if (!thread_) return;
  stopping_.store(true);
  kick();
  thread_->join();
  thread_.reset();
}

void EngineThread::abandon() noexcept {
  [[maybe_unused]] const std::thread* gone = thread_.release();  // its destructor would end the process
  epoll_.reset();
  event_.reset();
}

void EngineThread::watch_fd(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw system_error("watch a descriptor", errno);
}

void EngineThread::unwatch_fd(int fd) noexcept { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

void EngineThread::watch_receive_sockets(bool on) noexcept {
  for (const int fd : receive_fds_) {
    epoll_event event{};
    if (on) event.events = EPOLLIN;
    event.data.fd = fd;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
  }
}

void EngineThread::kick() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
}

void EngineThread::after_inline_pass(const Shard::Result& result, bool polled) noexcept {
  if (polled) {
    last_inline_.store(result.passed ? result.end : monotonic_now(), std::memory_order_relaxed);
    inline_passes_.fetch_add(1, std::memory_order_relaxed);
  }
  inline_inside_.fetch_sub(1, std::memory_order_relaxed);
  if (result.left || shard_->deadline() < asleep_until_.load()) kick();
}

void EngineThread::serve_now() noexcept {
  serve_requested_.store(true);
  if (standing_by_.load()) kick();
}

void EngineThread::run() noexcept {
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (standing_by_.load(std::memory_order_relaxed)) {
      stand_by();
    } else {
      serve();
    }
  }
}

void EngineThread::serve() noexcept {
  const Shard::Result result = shard_->progress(Shard::Depth::kFull);
  if (result.worked || result.left) {
    last_work_ = monotonic_now();
    if (last_work_ - last_sides_ >= kSidePeriod) serve_sides();
    if (result.left) return;
  }
  if (linger()) return;
  if (!shard_->prepare_sleep()) {
    sched_yield();
    return;
  }
  // An application at work arms a timer with each message. Were we asleep for ever, each would have to wake us for it.
  const Ps now = monotonic_now();
  const bool at_work = now - last_inline_.load(std::memory_order_relaxed) < kSecond;
  const bool by_link = wait(at_work ? now + kTimerGrace : kNever);
  shard_->end_sleep();
  judge_wake(by_link);
}

/// True while it is worth looking again at once.
bool EngineThread::linger() noexcept {
  const Ps since_work = monotonic_now() - last_work_;
  if (since_work >= linger_time_) return false;
  if (since_work > linger_time_ / 2) sched_yield();
  return true;
}

bool EngineThread::wait(Ps until) noexcept {
  // Publish when we wake before reading the deadline; after_inline_pass() does the reverse, so one of us sees it.
  asleep_until_.store(until);
  const Ps deadline = std::min(until, shard_->deadline());
  asleep_until_.store(deadline);
  const Ps now = monotonic_now();
  const Ps left = deadline == kNever ? kNever : std::max<Ps>(0, deadline - now);
  const timespec timeout{.tv_sec = left / kSecond, .tv_nsec = (left % kSecond) / kNanosecond};

  std::array<epoll_event, 8> events{};
  const int count = ::epoll_pwait2(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                   left == kNever ? nullptr : &timeout, nullptr);
  asleep_until_.store(0);
  bool by_link = false;
  for (const epoll_event& event : std::span{events}.first(static_cast<std::size_t>(std::max(count, 0)))) {
    const auto side = std::ranges::find(sides_, event.data.fd, &Side::fd);
    if (side != sides_.end()) {
      side->serve();
    } else if (event.data.fd != event_.get()) {  // a receive socket, or the same-host link
      by_link = true;
    } else {
      std::uint64_t kicks = 0;
      [[maybe_unused]] const ssize_t got = ::read(event_.get(), &kicks, sizeof kicks);
    }
  }
  return by_link;
}

void EngineThread::serve_sides() noexcept {
  last_sides_ = monotonic_now();
  for (const Side& side : sides_) side.serve();
}

/// At this moment; within a pass, which may take as long as a message is big, or shortly after one.
bool EngineThread::application_polls() const noexcept {
  return inline_inside_.load(std::memory_order_relaxed) != 0 ||
         monotonic_now() - last_inline_.load(std::memory_order_relaxed) <= kPollsNow;
}

void EngineThread::judge_wake(bool by_link) noexcept {
  const bool polls = application_polls();
  if (serve_requested_.exchange(false) || (by_link && !polls)) useless_wakes_ = 0;
  if (!by_link || !polls) return;
  if (++useless_wakes_ < useless_needed_) return;
  useless_wakes_ = 0;
  watch_receive_sockets(false);
  standing_by_.store(true);
}

bool EngineThread::data_waits() const noexcept {
  std::array<pollfd, 2> sockets{};
  for (std::size_t i = 0; i < sockets.size(); ++i) sockets[i] = {.fd = receive_fds_[i], .events = POLLIN, .revents = 0};
  return ::poll(sockets.data(), sockets.size(), 0) > 0;
}

void EngineThread::stand_by() noexcept {
  const Ps began = monotonic_now();
  Ps period = kStandByPeriod;
  std::uint64_t seen = inline_passes_.load(std::memory_order_relaxed);
  bool left_alone = false;
  while (!stopping_.load(std::memory_order_relaxed) && !serve_requested_.load()) {
    // The same-host link still says what woke us until a pass has looked at it: that is no look at the application.
    if (wait(monotonic_now() + period)) {
      shard_->progress(Shard::Depth::kFull);
      continue;
    }
    const Ps now = monotonic_now();
    if (shard_->deadline() <= now || shard_->holds_back()) shard_->progress(Shard::Depth::kFull);
    const std::uint64_t passes = inline_passes_.load(std::memory_order_relaxed);
    left_alone = passes == seen && inline_inside_.load(std::memory_order_relaxed) == 0;
    if (left_alone) break;
    seen = passes;
    period = application_polls() ? kStandByPeriod : kSecondLook;
  }
  if (monotonic_now() - began >= kLongStandBy) {
    useless_needed_ = kFewUselessWakes;
  } else if (left_alone && data_waits()) {
    useless_needed_ = std::min(useless_needed_ * 2, kManyUselessWakes);
  }
  standing_by_.store(false);
  watch_receive_sockets(true);
}

}  // namespace tensorwire::softhca
