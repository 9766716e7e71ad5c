#include "port.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>

namespace dcb_peer {
namespace {

constexpr std::array<const char*, 5> kDrivers{"mlx5", "bnxt", "virtual", "deaf", "forgetful"};

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  std::fprintf(stderr, "dcb_peer: %s: %s\n", path.c_str(), why.c_str());
  std::_Exit(70);
}

template <class Values>
void read_all(std::istream& line, Values& values) {
  for (auto& value : values) {
    int number = 0;
    line >> number;
    value = static_cast<std::uint8_t>(number);
  }
}

template <class Values>
std::string text_of(const Values& values) {
  std::ostringstream text;
  for (const auto value : values) text << ' ' << int{value};
  return text.str();
}

std::string sizes_of(const dcbnl_buffer& buffer) {
  std::ostringstream text;
  for (const auto size : buffer.buffer_size) text << ' ' << size;
  return text.str();
}

Driver driver_named(const std::string& name) {
  for (std::size_t i = 0; i < kDrivers.size(); ++i) {
    if (name == kDrivers[i]) return static_cast<Driver>(i);
  }
  return Driver::kMlx5;
}

/// What each line of the file sets.
void read_line(Port& port, const std::string& key, std::istream& line) {
  int a = 0;
  int b = 0;
  int c = 0;
  if (key == "driver") {
    std::string name;
    line >> name;
    port.driver = driver_named(name);
  } else if (key == "dcbx") {
    line >> a;
    port.dcbx = static_cast<std::uint8_t>(a);
  } else if (key == "pfc") {
    line >> a >> b >> c;
    port.pfc.pfc_cap = static_cast<std::uint8_t>(a);
    port.pfc.pfc_en = static_cast<std::uint8_t>(b);
    port.pfc.delay = static_cast<std::uint16_t>(c);
  } else if (key == "ets-cap") {
    line >> a;
    port.ets.ets_cap = static_cast<std::uint8_t>(a);
  } else if (key == "prio-tc") {
    read_all(line, port.ets.prio_tc);
  } else if (key == "tc-bw") {
    read_all(line, port.ets.tc_tx_bw);
  } else if (key == "tc-tsa") {
    read_all(line, port.ets.tc_tsa);
  } else if (key == "prio-buffer") {
    read_all(line, port.buffer.prio2buffer);
  } else if (key == "buffer-size") {
    for (auto& size : port.buffer.buffer_size) line >> size;
  } else if (key == "app") {
    line >> a >> b >> c;
    port.apps[{static_cast<std::uint8_t>(a), static_cast<std::uint16_t>(b)}] = static_cast<std::uint8_t>(c);
  } else if (key == "fail-at") {
    line >> port.fail_at;
  } else if (key == "link-flaps") {
    line >> port.link_flaps;
  }
}

}  // namespace

// ---- what a driver allows

Status Port::may_write() {
  if (fail_at > 0 && --fail_at == 0) return ENOMEM;
  switch (driver) {
    case Driver::kVirtual:
      return EOPNOTSUPP;
    case Driver::kBnxt:
      return (dcbx & DCB_CAP_DCBX_HOST) != 0 ? 0 : EINVAL;
    default:
      return 0;
  }
}

Status Port::set_pfc(const ieee_pfc& wanted) {
  if (const Status status = may_write(); status != 0 || driver == Driver::kDeaf) return status;
  if (wanted.pfc_en != pfc.pfc_en) ++link_flaps;
  pfc.pfc_en = wanted.pfc_en;
  if (wanted.delay != 0) pfc.delay = wanted.delay;
  return 0;
}

Status Port::set_ets(const ieee_ets& wanted) {
  if (const Status status = may_write(); status != 0 || driver == Driver::kDeaf) return status;
  int sum = 0;
  bool any = false;
  for (int tc = 0; tc < IEEE_8021QAZ_MAX_TCS; ++tc) {
    if (wanted.prio_tc[tc] >= ets.ets_cap) return EINVAL;
    if (wanted.tc_tsa[tc] == IEEE_8021QAZ_TSA_CB_SHAPER) return EOPNOTSUPP;
    if (wanted.tc_tsa[tc] == IEEE_8021QAZ_TSA_VENDOR && driver == Driver::kBnxt) return EOPNOTSUPP;
    if (wanted.tc_tsa[tc] != IEEE_8021QAZ_TSA_ETS) continue;
    any = true;
    sum += wanted.tc_tx_bw[tc];
  }
  if (any && sum != 100) return EINVAL;  // the shares of the ETS classes make up the whole
  const std::uint8_t cap = ets.ets_cap;
  ets = wanted;
  ets.ets_cap = cap;
  return 0;
}

Status Port::set_app(const dcb_app& app) {
  if (const Status status = may_write(); status != 0 || driver == Driver::kDeaf) return status;
  if ((driver == Driver::kMlx5 || driver == Driver::kForgetful) && app.selector != IEEE_8021QAZ_APP_SEL_DSCP)
    return EINVAL;
  if (app.selector == IEEE_8021QAZ_APP_SEL_DSCP && app.protocol >= 64) return EINVAL;
  apps[{app.selector, app.protocol}] = app.priority;
  return 0;
}

Status Port::delete_app(const dcb_app& app) {
  if (const Status status = may_write(); status != 0 || driver == Driver::kDeaf) return status;
  const auto found = apps.find({app.selector, app.protocol});
  if (found == apps.end() || found->second != app.priority) return ENOENT;
  apps.erase(found);
  return 0;
}

/// The kernel's reply is a byte: 0, or 1 for a mode that the driver does not take.
Status Port::set_dcbx(std::uint8_t mode) {
  if (driver == Driver::kVirtual || (mode & DCB_CAP_DCBX_VER_CEE) != 0) return 1;
  if (fail_at > 0 && --fail_at == 0) return 1;
  if (driver != Driver::kDeaf) dcbx = mode;
  return 0;
}

// ---- the file

Ports::Ports(const std::string& path) : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_ < 0 || ::flock(fd_, LOCK_EX) != 0) fail(path, "it cannot be opened and locked");
  std::ifstream file(path);
  Port* port = nullptr;
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string key;
    if (!(line >> key) || key.front() == '#') continue;
    if (key == "interface") {
      std::string name;
      line >> name;
      port = &ports_[name];
    } else if (port == nullptr) {
      fail(path, "the first line is not \"interface NAME\"");
    } else {
      read_line(*port, key, line);
      if (line.fail()) fail(path, "\"" + text + "\" makes no sense");
    }
  }
}

Ports::~Ports() { ::close(fd_); }

Port* Ports::find(const std::string& interface) {
  const auto found = ports_.find(interface);
  return found == ports_.end() ? nullptr : &found->second;
}

/// In place, for the lock belongs to this file.
void Ports::write() {
  std::ofstream file(path_, std::ios::trunc);
  for (const auto& [name, port] : ports_) {
    file << "interface " << name << "\ndriver " << kDrivers[static_cast<std::size_t>(port.driver)] << "\ndcbx "
         << int{port.dcbx} << "\npfc " << int{port.pfc.pfc_cap} << ' ' << int{port.pfc.pfc_en} << ' ' << port.pfc.delay
         << "\nets-cap " << int{port.ets.ets_cap} << "\nprio-tc" << text_of(port.ets.prio_tc) << "\ntc-bw"
         << text_of(port.ets.tc_tx_bw) << "\ntc-tsa" << text_of(port.ets.tc_tsa) << "\nprio-buffer"
         << text_of(port.buffer.prio2buffer) << "\nbuffer-size" << sizes_of(port.buffer) << "\nlink-flaps "
         << port.link_flaps << "\nfail-at " << port.fail_at << '\n';
    for (const auto& [app, priority] : port.apps) {
      file << "app " << int{app.first} << ' ' << app.second << ' ' << int{priority} << '\n';
    }
  }
}

}  // namespace dcb_peer
