// One connection between rank 0 and another rank: JSON objects both ways, each in a frame of the bootstrap's. Every
// wait has a deadline.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/time.hpp"
#include "bootstrap/frame.hpp"
#include "bootstrap/socket.hpp"

namespace tensorwire::cli {

class JsonLine {
 public:
  explicit JsonLine(bootstrap::Socket socket);
  /// The two ends of a line within this process.
  [[nodiscard]] static std::pair<JsonLine, JsonLine> pair();

  /// False when the other end is gone or takes nothing until the deadline; the line is closed then.
  bool send(const nlohmann::json& message, Ps deadline);
  /// nullopt: the deadline passed, or the line is closed (is_open() tells which).
  [[nodiscard]] std::optional<nlohmann::json> receive(Ps deadline);
  /// What has come, without waiting.
  [[nodiscard]] std::optional<nlohmann::json> take();

  [[nodiscard]] bool is_open() const noexcept { return static_cast<bool>(socket_); }
  [[nodiscard]] int fd() const noexcept { return socket_.fd(); }

  /// For the handshake: frames as they are.
  bool send_frame(bootstrap::FrameType type, std::span<const std::byte> body, Ps deadline);
  [[nodiscard]] std::optional<bootstrap::Frame> receive_frame(Ps deadline);

 private:
  void read_what_came();

  bootstrap::Socket socket_;
  bootstrap::FrameReader reader_;
};

}  // namespace tensorwire::cli
