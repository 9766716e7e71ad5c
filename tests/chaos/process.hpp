// A rank's process as the controller sees it: started anew when it was killed, heard, stopped and resumed, and measured
// after each round.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "chaos/usage.hpp"

namespace tensorwire::chaos {

class Process {
 public:
  /// Its standard error, where the library's log goes, is `log`.
  explicit Process(int log) noexcept : log_(log) {}
  ~Process() { end(); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// Starts it where it is not running. @throws Error.
  void start();
  /// Kills it where it is running.
  void end() noexcept;
  /// Hangs up, upon which it ends by itself; a sanitizer then looks for what is left. @return what was wrong with that,
  /// "" for nothing.
  [[nodiscard]] std::string finish();

  /// Looks whether it stopped, was resumed or died.
  void look() noexcept;
  [[nodiscard]] bool runs() const noexcept { return pid_ != 0; }
  [[nodiscard]] bool is_stopped() const noexcept { return stopped_; }
  /// The signal that it died of since start(); 0: it did not.
  [[nodiscard]] int died_of() const noexcept { return died_of_; }
  void resume() noexcept;

  [[nodiscard]] int socket() const noexcept { return socket_; }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

  /// Told after each round that it got through. @return what it has more than after its first one; "" for nothing.
  [[nodiscard]] std::string leak(const Usage& now);

 private:
  int log_;
  pid_t pid_ = 0;
  int socket_ = -1;
  bool stopped_ = false;
  int died_of_ = 0;
  std::optional<Usage> first_;
};

}  // namespace tensorwire::chaos
