#include <array>
#include <cerrno>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "wire/pcap.hpp"
#include "wire/pcap_format.hpp"

namespace tensorwire::wire {

namespace {

/// Walks a capture in memory; every read is checked against what is left.
class Reader {
 public:
  Reader(std::span<const std::byte> file, std::string_view name) : file_(file), name_(name) { read_file_header(); }

  [[nodiscard]] bool done() const noexcept { return offset_ == file_.size(); }

  PcapRecord next() {
    if (left() < pcap::kRecordHeaderBytes) fail("the file ends inside a record header (" + count(left()) + " left)");
    const std::uint32_t seconds = u32(offset_);
    const std::uint32_t fraction = u32(offset_ + 4);
    const std::uint32_t captured = u32(offset_ + 8);
    PcapRecord record;
    record.time_ns = seconds * pcap::kNanosecondsPerSecond + fraction * nanoseconds_per_fraction_;
    record.original_bytes = u32(offset_ + 12);
    if (captured > left() - pcap::kRecordHeaderBytes) {
      fail("a record claims " + count(captured) + ", the file has " + count(left() - pcap::kRecordHeaderBytes) +
           " left");
    }
    const auto bytes = file_.subspan(offset_ + pcap::kRecordHeaderBytes, captured);
    record.bytes.assign(bytes.begin(), bytes.end());
    offset_ += pcap::kRecordHeaderBytes + captured;
    return record;
  }

 private:
  void read_file_header() {
    if (file_.size() < pcap::kFileHeaderBytes) {
      fail("the file has " + count(file_.size()) + ", a pcap file header " + count(pcap::kFileHeaderBytes));
    }
    read_magic();
    if (const unsigned major = u16(pcap::kVersionOffset); major != pcap::kVersionMajor) {
      fail("pcap version " + std::to_string(major) + " is not 2");
    }
    if (const std::uint32_t link = u32(pcap::kLinkTypeOffset) & pcap::kLinkTypeMask; link != pcap::kLinkTypeEthernet) {
      fail("link type " + std::to_string(link) + " is not Ethernet (1)", "Capture on an Ethernet interface");
    }
    offset_ = pcap::kFileHeaderBytes;
  }

  void read_magic() {
    const std::uint32_t big = load_be32(file_.data());
    const std::uint32_t little = load_le32(file_.data());
    if (big == pcap::kMagicPcapng) fail("this is a pcapng file", "Convert it: editcap -F nsecpcap IN OUT");
    little_endian_ = little == pcap::kMagicNanoseconds || little == pcap::kMagicMicroseconds;
    const std::uint32_t magic = little_endian_ ? little : big;
    if (magic != pcap::kMagicNanoseconds && magic != pcap::kMagicMicroseconds) {
      fail("this is not a pcap file (unknown magic number)");
    }
    nanoseconds_per_fraction_ = magic == pcap::kMagicMicroseconds ? 1'000 : 1;
  }

  [[nodiscard]] std::size_t left() const noexcept { return file_.size() - offset_; }

  [[nodiscard]] std::uint32_t u32(std::size_t at) const noexcept {
    return little_endian_ ? load_le32(file_.data() + at) : load_be32(file_.data() + at);
  }

  [[nodiscard]] unsigned u16(std::size_t at) const noexcept {
    const unsigned first = std::to_integer<unsigned>(file_[at]);
    const unsigned second = std::to_integer<unsigned>(file_[at + 1]);
    return little_endian_ ? second << 8 | first : first << 8 | second;
  }

  static std::string count(std::size_t bytes) { return std::to_string(bytes) + " bytes"; }

  [[noreturn]] void fail(const std::string& why, std::string remedy = {}) const {
    throw Error("read capture " + std::string(name_) + " at offset " + std::to_string(offset_), why, std::move(remedy));
  }

  std::span<const std::byte> file_;
  std::string_view name_;
  std::size_t offset_ = 0;
  bool little_endian_ = false;
  std::int64_t nanoseconds_per_fraction_ = 1;
};

std::vector<std::byte> read_file(const std::string& path) {
  struct Close {
    void operator()(std::FILE* f) const noexcept { std::fclose(f); }
  };
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) throw system_error("open capture " + path, errno);
  std::vector<std::byte> content;
  std::array<std::byte, 1 << 16> chunk;
  while (const std::size_t n = std::fread(chunk.data(), 1, chunk.size(), file.get())) {
    content.insert(content.end(), chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(n));
  }
  if (std::ferror(file.get()) != 0) throw system_error("read capture " + path, errno);
  return content;
}

}  // namespace

std::vector<PcapRecord> parse_pcap(std::span<const std::byte> file, std::string_view name) {
  Reader reader(file, name);
  std::vector<PcapRecord> records;
  while (!reader.done()) records.push_back(reader.next());
  return records;
}

std::vector<PcapRecord> read_pcap(const std::string& path) { return parse_pcap(read_file(path), path); }

}  // namespace tensorwire::wire
