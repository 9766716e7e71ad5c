#include "comm/link.hpp"

#include "base/error.hpp"

namespace tensorwire::comm {

UserOutput Link::output_of(void* /*address*/, std::size_t /*bytes*/) {
  throw Error{"let peers write into user memory", "this link has no windows", "Ask has_windows() first"};
}

}  // namespace tensorwire::comm
