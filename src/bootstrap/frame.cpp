#include "bootstrap/frame.hpp"

#include <algorithm>

#include "base/bytes.hpp"

namespace tensorwire::bootstrap {

namespace {

bool is_frame_type(std::byte value) noexcept {
  const auto type = std::to_integer<std::uint8_t>(value);
  return type >= static_cast<std::uint8_t>(FrameType::kGreeting) &&
         type <= static_cast<std::uint8_t>(FrameType::kCaller);
}

}  // namespace

EncodedFrame encode_frame(FrameType type, std::span<const std::byte> body) {
  auto frame = std::make_shared<Bytes>(kFrameHeaderBytes + body.size());
  store_be32(frame->data(), static_cast<std::uint32_t>(body.size()));
  (*frame)[4] = static_cast<std::byte>(type);
  std::ranges::copy(body, frame->begin() + kFrameHeaderBytes);
  return frame;
}

void FrameReader::append(std::span<const std::byte> bytes) {
  if (broken_) return;
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(consumed_));
  consumed_ = 0;
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

std::optional<Frame> FrameReader::next() {
  const std::size_t available = buffer_.size() - consumed_;
  if (broken_ || available < kFrameHeaderBytes) return std::nullopt;
  const std::byte* header = buffer_.data() + consumed_;
  const std::size_t length = load_be32(header);
  if (length > max_body_ || !is_frame_type(header[4])) {
    broken_ = true;
    return std::nullopt;
  }
  if (available < kFrameHeaderBytes + length) return std::nullopt;

  Frame frame{static_cast<FrameType>(header[4]),
              Bytes(header + kFrameHeaderBytes, header + kFrameHeaderBytes + length)};
  consumed_ += kFrameHeaderBytes + length;
  return frame;
}

}  // namespace tensorwire::bootstrap
