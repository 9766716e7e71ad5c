#include "verbs/queue_pair.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/random.hpp"

namespace tensorwire::verbs {

namespace {

constexpr std::uint32_t kMask24 = (1U << 24) - 1;

// The layout of an exchanged address.
constexpr std::size_t kGidAt = 0;
constexpr std::size_t kQpnAt = 16;
constexpr std::size_t kPsnAt = 20;
constexpr std::size_t kMtuAt = 24;
constexpr std::size_t kReservedAt = 25;
constexpr std::size_t kLidAt = 26;
static_assert(kLidAt + sizeof(std::uint16_t) == QpAddress::kBytes);

ibv_qp* create_rc(const ProtectionDomain& domain, ibv_cq* send_cq, ibv_cq* receive_cq, const QpOptions& options,
                  std::uint32_t& max_inline) {
  ibv_qp_init_attr init{};
  init.send_cq = send_cq;
  init.recv_cq = receive_cq;
  init.qp_type = IBV_QPT_RC;
  // No attribute tells how much a device can send inline: ask for less until it agrees.
  for (std::uint32_t inline_bytes = options.max_inline;; inline_bytes /= 2) {
    init.cap = {.max_send_wr = options.send_depth,
                .max_recv_wr = options.receive_depth,
                .max_send_sge = options.max_send_pieces,
                .max_recv_sge = 1,
                .max_inline_data = inline_bytes};
    errno = 0;
    ibv_qp* qp = domain.context()->call().create_qp(domain.raw(), &init);
    if (qp != nullptr) {
      max_inline = init.cap.max_inline_data;
      return qp;
    }
    if (inline_bytes == 0 || errno != EINVAL) return nullptr;
  }
}

}  // namespace

std::array<std::byte, QpAddress::kBytes> to_bytes(const QpAddress& address) noexcept {
  std::array<std::byte, QpAddress::kBytes> bytes{};
  std::memcpy(bytes.data() + kGidAt, address.gid.bytes.data(), address.gid.bytes.size());
  store_be32(bytes.data() + kQpnAt, address.qpn);
  store_be32(bytes.data() + kPsnAt, address.psn);
  bytes[kMtuAt] = static_cast<std::byte>(address.mtu);
  store_be16(bytes.data() + kLidAt, address.lid);
  return bytes;
}

std::optional<QpAddress> qp_address_from_bytes(std::span<const std::byte, QpAddress::kBytes> bytes) noexcept {
  QpAddress address;
  std::memcpy(address.gid.bytes.data(), bytes.data() + kGidAt, address.gid.bytes.size());
  address.qpn = load_be32(bytes.data() + kQpnAt);
  address.psn = load_be32(bytes.data() + kPsnAt);
  const auto mtu = std::to_integer<unsigned>(bytes[kMtuAt]);
  address.lid = load_be16(bytes.data() + kLidAt);
  const bool in_range = address.qpn <= kMask24 && address.psn <= kMask24 && mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 &&
                        bytes[kReservedAt] == std::byte{0};
  if (!in_range) return std::nullopt;
  address.mtu = static_cast<ibv_mtu>(mtu);
  return address;
}

std::unique_ptr<QueuePair> QueuePair::create(std::shared_ptr<ProtectionDomain> domain,
                                             std::shared_ptr<CompletionQueue> send_queue,
                                             std::shared_ptr<CompletionQueue> receive_queue, const QpOptions& options) {
  const Context& context = *domain->context();
  const std::string what = fmt::format("create a queue pair with {} sends and {} receives on {}", options.send_depth,
                                       options.receive_depth, context.name());
  std::uint32_t max_inline = 0;
  ibv_qp* raw = create_rc(*domain, send_queue->raw(), receive_queue->raw(), options, max_inline);
  if (raw == nullptr) {
    throw system_error(what, errno,
                       fmt::format("The device allows {} queue pairs of {} work requests with {} pieces",
                                   context.limits().max_qp, context.limits().max_qp_wr, context.limits().max_sge));
  }
  std::unique_ptr<QueuePair> qp{
      new QueuePair{std::move(domain), std::move(send_queue), std::move(receive_queue), raw, max_inline}};
  if (options.link == SameHostLink::kPackets && context.direct().set_link != nullptr) {
    const int error = context.direct().set_link(raw, TWDV_LINK_PACKETS);
    if (error != 0) throw system_error(what + " on packets only", error);
  }
  return qp;
}

QueuePair::QueuePair(std::shared_ptr<ProtectionDomain> domain, std::shared_ptr<CompletionQueue> send_queue,
                     std::shared_ptr<CompletionQueue> receive_queue, ibv_qp* qp, std::uint32_t max_inline)
    : domain_(std::move(domain)),
      send_queue_(std::move(send_queue)),
      receive_queue_(std::move(receive_queue)),
      qp_(qp),
      max_inline_(max_inline),
      address_{.gid = context()->gid(),
               .qpn = qp->qp_num,
               .psn = static_cast<std::uint32_t>(entropy64()) & kMask24,
               .mtu = context()->mtu(),
               .lid = 0} {}

QueuePair::~QueuePair() { context()->call().destroy_qp(qp_); }

int QueuePair::post_empty_receive(std::uint64_t wr_id) noexcept { return post_empty_receives(wr_id, 1); }

int QueuePair::post_empty_receives(std::uint64_t wr_id, std::uint32_t count) noexcept {
  constexpr std::uint32_t kChain = 32;
  std::array<ibv_recv_wr, kChain> chain{};
  while (count > 0) {
    const std::uint32_t length = std::min(count, kChain);
    for (std::uint32_t i = 0; i < length; ++i) {
      chain[i].wr_id = wr_id;
      chain[i].next = i + 1 < length ? &chain[i + 1] : nullptr;
    }
    ibv_recv_wr* bad = nullptr;
    if (const int error = ibv_post_recv(qp_, chain.data(), &bad); error != 0) return error;
    count -= length;
  }
  return 0;
}

int QueuePair::flush() noexcept {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  return context()->call().modify_qp(qp_, &attr, IBV_QP_STATE);
}

std::string QueuePair::link_description() const {
  const auto describe = context()->direct().link_description;
  if (describe == nullptr) return "RoCEv2 packets (hardware)";
  std::array<char, 256> text{};
  if (const int error = describe(qp_, text.data(), text.size()); error != 0) return "not connected";
  return text.data();
}

}  // namespace tensorwire::verbs
