#include "cuda/meeting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/fd_passing.hpp"
#include "base/random.hpp"
#include "cuda/driver.cuh"
#include "cuda/identity.hpp"

namespace tensorwire::cuda {

namespace {

constexpr std::uint32_t kMeetingVersion = 3;

/// What a rank says of itself. On the wire: big-endian words, the strings by length.
struct Card {
  std::uint32_t version = kMeetingVersion;
  std::uint64_t host = 0;         ///< hash of what tells it from others
  std::uint64_t process = 0;      ///< random, of this process
  std::uint64_t gpu = 0;          ///< hash of the UUID
  std::uint32_t device = 0;       ///< the GPU's number in this process
  std::uint32_t processors = 0;   ///< multiprocessors of the GPU
  std::uint64_t inbox_token = 0;  ///< what a delivery to this rank must bear
  std::array<std::uint32_t, 6> wishes{};
  std::string inbox;  ///< path
};

void put(Bytes& bytes, std::uint64_t word) {
  bytes.resize(bytes.size() + 8);
  store_be64(bytes.data() + bytes.size() - 8, word);
}

/// Reads words off bytes of another rank; past the end all is zero.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}
  std::uint64_t word() {
    if (left_.size() < 8) return 0;
    const std::uint64_t word = load_be64(left_.data());
    left_ = left_.subspan(8);
    return word;
  }
  std::uint32_t half_word() { return static_cast<std::uint32_t>(word()); }
  std::string rest() const { return {reinterpret_cast<const char*>(left_.data()), left_.size()}; }

 private:
  std::span<const std::byte> left_;
};

Bytes encoded(const Card& card) {
  Bytes bytes;
  for (const std::uint64_t word : {std::uint64_t{card.version}, card.host, card.process, card.gpu,
                                   std::uint64_t{card.device}, std::uint64_t{card.processors}, card.inbox_token}) {
    put(bytes, word);
  }
  for (const std::uint32_t wish : card.wishes) put(bytes, wish);
  const auto text = std::as_bytes(std::span(card.inbox));
  bytes.insert(bytes.end(), text.begin(), text.end());
  return bytes;
}

Card card_of(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Card card;
  card.version = reader.half_word();
  card.host = reader.word();
  card.process = reader.word();
  card.gpu = reader.word();
  card.device = reader.half_word();
  card.processors = reader.half_word();
  card.inbox_token = reader.word();
  for (std::uint32_t& wish : card.wishes) wish = reader.half_word();
  card.inbox = reader.rest();
  return card;
}

std::uint64_t process_token() {
  static const std::uint64_t token = entropy64();
  return token;
}

/// The scratch of this process's ranks by the names that they give to each other.
class Household {
 public:
  std::uint64_t add(const std::shared_ptr<GpuMemory>& memory) {
    const std::lock_guard lock(mutex_);
    std::erase_if(members_, [](const auto& member) { return member.second.expired(); });
    members_[++last_] = memory;
    return last_;
  }
  /// @throws Error when it is gone
  std::shared_ptr<GpuMemory> find(std::uint64_t name) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<GpuMemory> found = members_[name].lock();
    if (!found) throw Error("find GPU memory of another rank in this process", "it is gone");
    return found;
  }

 private:
  std::mutex mutex_;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, std::weak_ptr<GpuMemory>> members_;
};

Household& household() {
  static Household members;
  return members;
}

/// Ends a step on all ranks: `action` makes this rank's bytes. @throws Error on all ranks where any rank's action threw
template <class Action>
std::vector<Bytes> all_through(const Exchange& exchange, Action action) {
  constexpr std::byte kWell{0};
  constexpr std::byte kTrouble{1};
  Bytes mine{kWell};
  try {
    const Bytes made = action();
    mine.insert(mine.end(), made.begin(), made.end());
  } catch (const Error& error) {
    const std::string line = error.what();
    const auto text = std::as_bytes(std::span(line));
    mine.assign(1, kTrouble);
    mine.insert(mine.end(), text.begin(), text.end());
  }
  std::vector<Bytes> all = exchange(mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].empty() && all[rank][0] == kWell) {
      all[rank].erase(all[rank].begin());
      continue;
    }
    const Reader reader(std::span<const std::byte>(all[rank]).subspan(all[rank].empty() ? 0 : 1));
    throw Error(fmt::format("set up GPU memory between {} ranks: rank {}", all.size(), rank), reader.rest());
  }
  return all;
}

Card own_card(const CommunicatorOptions& options, const FdInbox& inbox, std::uint64_t inbox_token) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, options.device), fmt::format("look at GPU {}", options.device));
  Card card;
  card.host = options.host != 0 ? options.host : host_identity(options.rank);
  card.process = process_token();
  card.gpu = gpu_identity(options.device);
  card.device = static_cast<std::uint32_t>(options.device);
  card.processors = static_cast<std::uint32_t>(properties.multiProcessorCount);
  card.inbox_token = inbox_token;
  card.wishes = {options.most_lanes, options.line_data_bytes, options.round_bytes,
                 options.slot_bytes, options.flag_bits,       static_cast<std::uint32_t>(options.scratch)};
  card.inbox = inbox.path();
  return card;
}

void check_cards(std::span<const Card> cards) {
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const std::string what = fmt::format("set up GPU memory between {} ranks: rank {}", cards.size(), rank);
    if (cards[rank].version != kMeetingVersion) throw Error(what, "it runs another version of Tensorwire");
    if (cards[rank].host != cards[0].host)
      throw Error(what, "it is on another host than rank 0 (see TENSORWIRE_HOSTID)");
    if (cards[rank].wishes != cards[0].wishes) throw Error(what, "its options are others than those of rank 0");
  }
}

/// All blocks of an operation must run at the same time, those of all ranks that share a GPU together.
Layout layout_of(const CommunicatorOptions& options, std::span<const Card> cards) {
  Layout layout;
  layout.ranks = static_cast<std::uint32_t>(options.ranks);
  layout.lanes = std::min(options.most_lanes, kMaxLanes);
  for (const Card& card : cards) {
    const auto sharers = static_cast<std::uint32_t>(std::ranges::count(cards, card.gpu, &Card::gpu));
    layout.lanes = std::max(std::min(layout.lanes, card.processors / sharers), 1U);
  }
  layout.lines = options.line_data_bytes / kLineData;
  layout.round_bytes = options.round_bytes;
  const bool wide = options.ranks == 2 && options.scratch == Home::kGpu;
  layout.slot_bytes = options.slot_bytes != 0 ? options.slot_bytes : wide ? 65536 : 32768;
  layout.flag_bits = options.flag_bits;
  layout.in_host = options.scratch == Home::kHost;
  return layout;
}

/// The GPUs that the ranks of a process use.
std::vector<int> devices_of(std::span<const Card> cards, std::uint64_t process) {
  std::set<int> devices;
  for (const Card& card : cards) {
    if (card.process == process) devices.insert(static_cast<int>(card.device));
  }
  return {devices.begin(), devices.end()};
}

void check_options(const CommunicatorOptions& options) {
  const std::string what = fmt::format("set up GPU memory for rank {} of {}", options.rank, options.ranks);
  if (options.ranks < 1 || options.ranks > static_cast<int>(kMaxRanks)) {
    throw Error(what, fmt::format("there may be 1 to {} ranks", kMaxRanks));
  }
  if (options.rank < 0 || options.rank >= options.ranks) throw Error(what, "there is no such rank");
  if (options.line_data_bytes == 0 || options.round_bytes == 0) throw Error(what, "lines and rounds have bytes");
  for (const std::uint32_t bytes : {options.line_data_bytes, options.round_bytes, options.slot_bytes}) {
    if (bytes % kUnitBytes != 0) throw Error(what, "lines, rounds and slots are multiples of 16 bytes");
  }
  if (options.flag_bits < 4 || options.flag_bits > 32) throw Error(what, "flags have 4 to 32 bits");
  if (options.most_lanes == 0) throw Error(what, "there must be a lane");
}

}  // namespace

Met meet(const CommunicatorOptions& options, const std::function<void()>& prepare) {
  check_options(options);
  const auto me = static_cast<std::size_t>(options.rank);
  std::optional<FdInbox> inbox;
  const std::uint64_t inbox_token = entropy64();

  std::vector<Card> cards;
  for (const Bytes& bytes :
       all_through(options.exchange, [&] { return encoded(own_card(options, inbox.emplace(), inbox_token)); })) {
    cards.push_back(card_of(bytes));
  }
  check_cards(cards);

  Met met;
  met.layout = layout_of(options, cards);
  met.scratch.resize(cards.size());
  for (const Card& card : cards) met.who.push_back(mix64(card.process ^ card.gpu));
  std::vector<std::uint64_t> names;
  std::size_t bytes = 0;
  for (const Bytes& made : all_through(options.exchange, [&] {
         prepare();
         met.scratch[me] = std::make_shared<GpuMemory>(GpuMemory::allocate(
             met.layout.bytes(), options.device, options.scratch, devices_of(cards, cards[me].process)));
         if (options.scratch == Home::kHost) {
           met.own =
               GpuMemory::allocate(met.layout.own_bytes(), options.device, Home::kGpu, std::span(&options.device, 1));
         }
         // All bits set: kNothing.
         met.scratch[me]->fill(met.layout.words_at(0, 0, 0), met.layout.words_bytes(), 0xff);
         Bytes mine;
         put(mine, household().add(met.scratch[me]));
         put(mine, met.scratch[me]->bytes());
         return mine;
       })) {
    Reader reader(made);
    names.push_back(reader.word());
    bytes = static_cast<std::size_t>(reader.word());
  }

  all_through(options.exchange, [&] {
    std::size_t elsewhere = 0;
    for (std::size_t rank = 0; rank < cards.size(); ++rank) {
      if (rank == me) continue;
      if (cards[rank].process == cards[me].process) {
        met.scratch[rank] = household().find(names[rank]);
        continue;
      }
      ++elsewhere;
      const UniqueFd fd = met.scratch[me]->descriptor();
      deliver_fd(cards[rank].inbox, cards[rank].inbox_token, static_cast<std::uint32_t>(me), fd.get());
    }
    const Ps deadline = monotonic_now() + options.setup_bound;
    for (; elsewhere > 0; --elsewhere) {
      const FdInbox::Delivery delivery = inbox->receive(inbox_token, deadline);
      if (delivery.sender >= cards.size() || met.scratch[delivery.sender] != nullptr) {
        throw Error("receive GPU memory of other ranks", fmt::format("rank {} came twice", delivery.sender));
      }
      met.scratch[delivery.sender] =
          std::make_shared<GpuMemory>(GpuMemory::of_fd(delivery.fd.get(), bytes, options.device));
    }
    return Bytes{};
  });
  return met;
}

}  // namespace tensorwire::cuda
