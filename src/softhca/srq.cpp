#include "softhca/srq.hpp"

#include <cerrno>

#include "base/error.hpp"
#include "softhca/hca_impl.hpp"

namespace tensorwire::softhca {

SrqImpl::SrqImpl(HcaImpl& hca, const transport::SrqInit& init) : hca_(hca), user_(init.user) {
  if (hca_.dead()) throw system_error("create a shared receive queue in a forked child", EIO);
  transport::SrqInit mine = init;
  mine.user = this;
  hca_.shard().locked([&] { queue_ = &hca_.shard().engine().create_srq(mine); });
}

SrqImpl::~SrqImpl() {
  if (hca_.dead()) return;
  hca_.shard().locked([&] {
    hca_.shard().engine().destroy_srq(*queue_);
    hca_.shard().forget_events(this);
  });
  hca_.shard().wait_for_events();
}

int SrqImpl::post(const transport::RecvWr& wr) noexcept {
  if (hca_.dead()) return EIO;
  const std::lock_guard guard{post_mutex_};
  return queue_->post(wr);
}

int SrqImpl::arm(std::uint32_t limit) noexcept {
  if (hca_.dead()) return EIO;
  const int error = hca_.shard().locked([&] { return queue_->arm(limit); });
  hca_.progress_inline(Shard::Depth::kTransmit);  // a limit that is reached already is told at once
  return error;
}

std::uint32_t SrqImpl::limit() const noexcept {
  return hca_.shard().locked([&] { return queue_->limit(); });
}

}  // namespace tensorwire::softhca
