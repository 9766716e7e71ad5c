// A verbs program with two sides, to hold two HCAs against each other: one runs it as server, the other as client.
//
//   rxe_peer serve PORT                       sessions, one after another, until it is killed
//   rxe_peer run ADDRESS PORT KEY=VALUE...    one session with the server at ADDRESS
//
// Keys: initiator=here|there, scenario=reliable|unreliable|datagrams|refusal|leases, kinds=send,write,...,
// refusal=NAME, count=, window=, mtu=, seed=, timeout=, late=0|1, loss=0|1, ipv6=0|1. Prints results and counters of
// both sides, "here" and "there"; exits 1 with one line when something was wrong on either.
#include <sys/socket.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "control.hpp"
#include "plan.hpp"
#include "session.hpp"
#include "station.hpp"

namespace tensorwire::rxe {

namespace {

template <typename Number>
Number number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw std::runtime_error{"not a number: " + std::string{text}};
  }
  return value;
}

template <std::size_t kCount>
std::uint32_t place(const std::array<std::string_view, kCount>& names, std::string_view name) {
  for (std::uint32_t i = 0; i < kCount; ++i) {
    if (names[i] == name) return i;
  }
  throw std::runtime_error{"unknown name: " + std::string{name}};
}

std::uint32_t kinds(std::string_view names) {
  std::uint32_t mask = 0;
  while (!names.empty()) {
    const std::size_t comma = names.find(',');
    mask |= 1U << place(kKindNames, names.substr(0, comma));
    names = comma == std::string_view::npos ? std::string_view{} : names.substr(comma + 1);
  }
  return mask;
}

Settings parse(std::span<char*> arguments) {
  constexpr auto kScenarioNames =
      std::to_array<std::string_view>({"reliable", "unreliable", "datagrams", "refusal", "leases"});
  Settings settings;
  for (const std::string_view argument : arguments) {
    const std::string_view key = argument.substr(0, argument.find('='));
    const std::string_view value = argument.substr(std::min(key.size() + 1, argument.size()));
    if (key == "initiator") {
      settings.client_initiates = value == "here";
    } else if (key == "scenario") {
      settings.scenario = static_cast<Scenario>(place(kScenarioNames, value));
    } else if (key == "refusal") {
      settings.refusal = static_cast<Refusal>(place(kRefusalNames, value));
    } else if (key == "kinds") {
      settings.kinds = kinds(value);
    } else if (key == "count") {
      settings.count = number<std::uint32_t>(value);
    } else if (key == "window") {
      settings.window = std::min(number<std::uint32_t>(value), kSlots);
    } else if (key == "mtu") {
      settings.path_mtu = number<std::uint32_t>(value);
    } else if (key == "seed") {
      settings.seed = number<std::uint64_t>(value);
    } else if (key == "timeout") {
      settings.ack_timeout = number<std::uint8_t>(value);
    } else if (key == "late") {
      settings.late_receives = value == "1";
    } else if (key == "ipv6") {
      settings.ipv6 = value == "1";
    } else if (key == "loss") {
      settings.loss = value == "1";
    } else {
      throw std::runtime_error{"unknown key: " + std::string{key}};
    }
  }
  return settings;
}

Outcome run_scenario(Station& station, Control& control, const Settings& settings, Role role) {
  switch (settings.scenario) {
    case Scenario::kReliable:
      return run_reliable(station, control, settings, role);
    case Scenario::kUnreliable:
    case Scenario::kDatagrams:
      return run_answered(station, control, settings, role);
    case Scenario::kRefusal:
      return run_refusal(station, control, settings, role);
    case Scenario::kLeases:
      return run_leases(station, control, settings, role);
  }
  throw std::runtime_error{"an unknown scenario"};
}

ibv_qp_type type_of(Scenario scenario) noexcept {
  switch (scenario) {
    case Scenario::kUnreliable:
      return IBV_QPT_UC;
    case Scenario::kDatagrams:
      return IBV_QPT_UD;
    default:
      return IBV_QPT_RC;
  }
}

/// One side of one session: lines "NAME VALUE" of what it did and how the counters moved.
std::string session(Control& control, const Settings& settings, bool client) {
  const Role role = client == settings.client_initiates ? Role::kInitiator : Role::kTarget;
  Station station{control.local_ipv4(), type_of(settings.scenario), settings.ipv6};
  std::map<std::string, std::uint64_t> before;
  for (const auto& [name, value] : counters(station.context())) before[name] = value;

  const auto moved = [&](const char* separator) {
    std::string text;
    for (const auto& [name, value] : counters(station.context())) {
      if (value != before[name] || *separator == '\n')
        text += name + " " + std::to_string(value - before[name]) + separator;
    }
    return text;
  };
  try {
    const Outcome outcome = run_scenario(station, control, settings, role);
    return "operations " + std::to_string(outcome.operations) + "\nbytes " + std::to_string(outcome.bytes) +
           "\nrepeated " + std::to_string(outcome.repeated) + "\n" + moved("\n");
  } catch (const std::exception& error) {
    throw std::runtime_error{std::string{error.what()} + " [" + moved(", ") + "]"};
  }
}

void print(const char* side, std::string_view lines) {
  while (!lines.empty()) {
    const std::size_t end = lines.find('\n');
    std::printf("%s %.*s\n", side, static_cast<int>(end), lines.data());
    lines.remove_prefix(end + 1);
  }
}

int run(const std::string& address, std::uint16_t port, const Settings& settings) {
  Control control = Control::connect(address, port);
  control.send(settings);
  try {
    const auto began = std::chrono::steady_clock::now();
    const std::string mine = session(control, settings, true);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    control.barrier();
    print("there", control.receive_text());
    print("here", mine);
    std::printf("here milliseconds %.0f\n", took.count() * 1000);
    return 0;
  } catch (const std::exception& error) {
    std::printf("wrong: %s\n", error.what());
    try {
      control.complain(error.what());
      for (;;) control.barrier();  // until it says what it knows
    } catch (const std::exception& other) {
      std::printf("wrong: %s\n", other.what());
    }
    return 1;
  }
}

[[noreturn]] void serve(std::uint16_t port) {
  const int listener = listen_on(port);
  for (;;) {
    try {
      Control control{::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)};
      try {
        const auto settings = control.receive<Settings>();
        const std::string text = session(control, settings, false);
        control.barrier();
        control.send_text(text);
      } catch (const std::exception& error) {
        control.complain(error.what());
      }
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rxe_peer: %s\n", error.what());
    }
  }
}

}  // namespace

}  // namespace tensorwire::rxe

int main(int argc, char** argv) {
  using namespace tensorwire::rxe;
  try {
    const std::string_view command = argc > 1 ? argv[1] : "";
    if (command == "serve" && argc == 3) serve(number<std::uint16_t>(argv[2]));
    if (command == "run" && argc >= 4) {
      return run(argv[2], number<std::uint16_t>(argv[3]),
                 parse(std::span{argv, static_cast<std::size_t>(argc)}.subspan(4)));
    }
    std::fprintf(stderr, "usage: rxe_peer serve PORT | rxe_peer run ADDRESS PORT KEY=VALUE...\n");
    return 2;
  } catch (const std::exception& error) {
    std::printf("wrong: %s\n", error.what());
    return 1;
  }
}
