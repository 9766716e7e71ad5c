// Any bytes as a capture file: an Error or records that fit into the file, and never more memory than it has bytes for.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/error.hpp"
#include "wire/pcap.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tensorwire;
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  try {
    std::size_t total = 0;
    for (const wire::PcapRecord& record : wire::parse_pcap(file, "input")) {
      total += record.bytes.size();
      (void)wire::parse_frame(record.bytes);
    }
    if (total > size) std::abort();
  } catch (const Error& error) {
    if (error.parts().what.empty() || error.parts().why.empty()) std::abort();
  }
  return 0;
}
