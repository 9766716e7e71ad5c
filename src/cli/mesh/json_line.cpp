#include "cli/mesh/json_line.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace tensorwire::cli {
namespace {

using bootstrap::Frame;
using bootstrap::FrameType;
using bootstrap::IoResult;
using bootstrap::IoStatus;

/// A recording of a large host has a few hundred kilobytes.
constexpr std::size_t kMaxMessage = std::size_t{64} << 20;
constexpr std::size_t kReadPiece = std::size_t{64} << 10;

}  // namespace

JsonLine::JsonLine(bootstrap::Socket socket) : socket_(std::move(socket)), reader_(kMaxMessage) {}

std::pair<JsonLine, JsonLine> JsonLine::pair() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    throw system_error("make a pair of sockets", errno);
  }
  return {JsonLine{bootstrap::Socket{ends[0]}}, JsonLine{bootstrap::Socket{ends[1]}}};
}

bool JsonLine::send_frame(FrameType type, std::span<const std::byte> body, Ps deadline) {
  if (!is_open()) return false;
  const bootstrap::EncodedFrame frame = bootstrap::encode_frame(type, body);
  for (std::span<const std::byte> rest{*frame}; !rest.empty();) {
    const IoResult io = bootstrap::write_some(socket_, rest);
    const bool stuck = io.status == IoStatus::kWouldBlock && !bootstrap::wait_for(socket_.fd(), POLLOUT, deadline);
    if (stuck || io.status == IoStatus::kError || io.status == IoStatus::kClosed) {
      socket_.reset();
      return false;
    }
    rest = rest.subspan(io.bytes);
  }
  return true;
}

bool JsonLine::send(const nlohmann::json& message, Ps deadline) {
  // What a host says about itself may be no UTF-8.
  const std::string text = message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return send_frame(FrameType::kContribution, std::as_bytes(std::span{text}), deadline);
}

void JsonLine::read_what_came() {
  std::array<std::byte, kReadPiece> piece;
  while (is_open()) {
    const IoResult io = bootstrap::read_some(socket_, piece);
    if (io.status == IoStatus::kWouldBlock) return;
    if (io.status != IoStatus::kDone) return socket_.reset();
    reader_.append(std::span{piece}.first(io.bytes));
    if (io.bytes < piece.size()) return;
  }
}

std::optional<Frame> JsonLine::receive_frame(Ps deadline) {
  for (;;) {
    if (auto frame = reader_.next()) return frame;
    if (reader_.broken()) socket_.reset();
    if (!is_open() || !bootstrap::wait_for(socket_.fd(), POLLIN, deadline)) return std::nullopt;
    read_what_came();
  }
}

std::optional<nlohmann::json> JsonLine::receive(Ps deadline) {
  const auto frame = receive_frame(deadline);
  if (!frame) return std::nullopt;
  const auto* const text = reinterpret_cast<const char*>(frame->body.data());
  auto message = nlohmann::json::parse(text, text + frame->body.size(), nullptr, false);
  if (frame->type == FrameType::kContribution && message.is_object()) return message;
  socket_.reset();  // not one of ours
  return std::nullopt;
}

std::optional<nlohmann::json> JsonLine::take() { return receive(0); }

}  // namespace tensorwire::cli
