#include "comm/mapped_region.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/error.hpp"
#include "base/round_up.hpp"
#include "base/units.hpp"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace tensorwire::comm {

namespace {

constexpr std::size_t kHugePage = 2U << 20;
constexpr const char* kAdvice = "TENSORWIRE_MAPPED=off goes without";

/// At a multiple of the huge page, where the system has those for shared memory; null: errno says why.
void* map_region(int fd, std::size_t bytes, int protection) noexcept {
  const std::size_t reserved = bytes + kHugePage;
  void* const room = ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return nullptr;
  const auto at = reinterpret_cast<std::uintptr_t>(room);
  auto* const begin = static_cast<std::byte*>(room) + (round_up(at, kHugePage) - at);
  void* const mapped = ::mmap(begin, bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
  const int error = errno;
  const auto before = static_cast<std::size_t>(begin - static_cast<std::byte*>(room));
  if (mapped == MAP_FAILED) {
    ::munmap(room, reserved);
    errno = error;
    return nullptr;
  }
  if (before != 0) ::munmap(room, before);
  const std::size_t used = round_up(bytes, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
  ::munmap(begin + used, reserved - before - used);
  ::madvise(mapped, bytes, MADV_HUGEPAGE);  // a wish, not a need
  return mapped;
}

}  // namespace

SharedRegion::SharedRegion(std::size_t bytes) {
  const std::string what = fmt::format("allocate {} of memory that ranks of this host share", format_bytes(bytes));
  fd_ = UniqueFd(::memfd_create("tensorwire-slots", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd_ || ::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) throw system_error(what, errno, kAdvice);
  void* const memory = map_region(fd_.get(), bytes, PROT_READ | PROT_WRITE);
  if (memory == nullptr) throw system_error(what, errno, kAdvice);
  bytes_ = {static_cast<std::byte*>(memory), bytes};
  // This mapping can write; later ones cannot.
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  const bool populated = ::madvise(memory, bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL;
  if (!populated || ::fcntl(fd_.get(), F_ADD_SEALS, kSeals) != 0) {
    const int error = errno;
    ::munmap(memory, bytes);
    throw system_error(what, error, kAdvice);
  }
}

SharedRegion::~SharedRegion() { ::munmap(bytes_.data(), bytes_.size()); }

PeerRegion::PeerRegion(int descriptor, std::size_t bytes) {
  const char* const what = "map the slots of another rank of this host";
  struct stat status = {};
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & kNeeded) != kNeeded || ::fstat(descriptor, &status) != 0 ||
      status.st_size != static_cast<off_t>(bytes)) {
    throw Error{what, "it gave something else than sealed memory of the agreed size"};
  }
  const void* const memory = map_region(descriptor, bytes, PROT_READ);
  if (memory == nullptr) throw system_error(what, errno);
  bytes_ = {static_cast<const std::byte*>(memory), bytes};
  ::madvise(const_cast<void*>(memory), bytes, MADV_POPULATE_READ);  // now, not in the first operation
}

PeerRegion::PeerRegion(PeerRegion&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

PeerRegion& PeerRegion::operator=(PeerRegion&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

PeerRegion::~PeerRegion() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace tensorwire::comm
