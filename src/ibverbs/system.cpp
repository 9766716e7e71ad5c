// Helpers around the process and sysfs that programs take from libibverbs.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <string>

#include "ibverbs/export.hpp"

namespace tw = tensorwire::ibverbs;

// Pages under a registration need no protection from fork here: nothing holds their physical addresses.
TENSORWIRE_VERB int ibv_fork_init() { return 0; }
TENSORWIRE_VERB ibv_fork_status ibv_is_fork_initialized() { return IBV_FORK_UNNEEDED; }
TENSORWIRE_VERB int ibv_dontfork_range(void*, std::size_t) { return 0; }
TENSORWIRE_VERB int ibv_dofork_range(void*, std::size_t) { return 0; }

TENSORWIRE_VERB const char* ibv_get_sysfs_path() { return "/sys"; }

/// The first `size` - 1 bytes of dir/file without a newline at their end. @return their number, or -1 and errno.
TENSORWIRE_VERB int ibv_read_sysfs_file(const char* dir, const char* file, char* buf, std::size_t size) {
  if (size == 0) return tw::minus_one(EINVAL);
  try {
    const std::string path = std::string(dir) + "/" + file;
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return -1;
    const ssize_t count = ::read(descriptor, buf, size - 1);
    const int read_errno = errno;
    ::close(descriptor);
    if (count < 0) return tw::minus_one(read_errno);
    auto length = static_cast<std::size_t>(count);
    if (length > 0 && buf[length - 1] == '\n') --length;
    buf[length] = '\0';
    return static_cast<int>(length);
  } catch (const std::bad_alloc&) {
    return tw::minus_one(ENOMEM);
  }
}
